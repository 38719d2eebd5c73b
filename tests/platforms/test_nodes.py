"""Lists of node names: what people and Slurm write becomes names."""

from __future__ import annotations

import pytest

from platforms.nodes import node_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n07", ["n07"]),
        ("n01,n03..n05", ["n01", "n03", "n04", "n05"]),
        (" n1 , n2 ", ["n1", "n2"]),
        ("n[01-03]", ["n01", "n02", "n03"]),
        ("n[01-02,9],m1", ["n01", "n02", "n9", "m1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n99..n101", ["n99", "n100", "n101"]),
        ("gpu-9.hpc.example..gpu-11.hpc.example", [f"gpu-{n}.hpc.example" for n in ("9", "10", "11")]),
        ("r1n1..r1n2,r1n2", ["r1n1", "r1n2"]),
        ("n07..n07", ["n07"]),
    ],
)
def test_lists_of_nodes(text, names):
    assert node_names(text) == tuple(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is no name of a node"),
        ("n1,,n2", "'' is no name of a node"),
        ("n1 n2", "'n1 n2' is no name of a node"),
        ("-w", "'-w' is no name of a node"),
        ("n1;rm", "'n1;rm' is no name of a node"),
        ("n[]", "from a number to a larger one"),
        ("n[1-3", "a bracket is not closed"),
        ("n[1-x]", "from a number to a larger one"),
        ("n20..n01", "from a number to a larger one"),
        ("n1..m3", "differ in one number"),
        ("n1..", "differ in one number"),
        ("..", "differ in one number"),
        ("r1n1..r2n2", "differ in one number"),
        ("n[1-9][0-99999]", "more than 100000 nodes"),
        ("n1..n999999999", "more than 100000 nodes"),
    ],
)
@pytest.mark.slow
def test_what_is_no_list_is_refused_with_a_sentence(text, why):
    with pytest.raises(ValueError, match=why):
        node_names(text)
