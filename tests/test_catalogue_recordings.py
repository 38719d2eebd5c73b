"""What others' tools have printed goes through the tests of catalogue/: tests/recordings/table.yaml.

A new recording is one file and one entry. The head of the table says what the keys of an entry mean.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalogue import (
    test_fio,
    test_gloo,
    test_hpl,
    test_ior,
    test_megatron,
    test_mpi,
    test_nccl,
    test_nvbandwidth,
    test_osu,
    test_stream,
    test_torchtitan,
    test_vllm,
)
from tests.harness.conftest import ROOT
from tests.test_catalogue import Replay, nccl_test, resnet50
from tests.test_catalogue import dlio as dlio
from tests.test_catalogue import fio as fio
from tests.test_catalogue import hpcc as hpcc
from tests.test_catalogue import ior as ior
from tests.test_catalogue import nccl as nccl
from tests.test_catalogue import netpipe as netpipe
from tests.test_catalogue import osu as osu
from tests.test_catalogue import replay as replay
from tests.test_catalogue import stream as stream
from tests.test_catalogue import vllm as vllm

FOLDER = ROOT / "tests" / "recordings"
TABLE = yaml.safe_load((FOLDER / "table.yaml").read_text())
ENTRIES: list[dict[str, Any]] = TABLE["recordings"]
alltoall = functools.update_wrapper(functools.partial(test_nccl.test_nccl, collective="alltoall"), test_nccl.test_nccl)
# For each test: the fixture with stand-ins of its tools, the name under which they read a recording, the function.
TESTS = {
    "test_dlio": ("dlio", "dlio.txt", resnet50),
    "test_fio": ("fio", "fio.txt", test_fio.test_fio),
    "test_gloo": ("replay", "interpreter.txt", test_gloo.test_all_reduce),
    "test_hpl": ("hpcc", "hpcc.txt", test_hpl.test_hpl),
    "test_ior": ("ior", "ior.txt", test_ior.test_ior),
    "test_mdtest": ("ior", "mdtest.txt", test_ior.test_mdtest),
    "test_megatron": ("replay", "interpreter.txt", test_megatron.test_megatron),
    "test_mpi": ("netpipe", "netpipe.txt", test_mpi.test_ping_pong),
    "test_nccl": ("nccl", "nccl.txt", nccl_test),
    "test_nccl of alltoall": ("nccl", "nccl.txt", alltoall),
    "test_nvbandwidth": ("replay", "nvbandwidth.txt", test_nvbandwidth.test_nvbandwidth),
    "test_osu": ("osu", "osu.txt", test_osu.test_collectives),
    "test_stream": ("stream", "stream.txt", test_stream.test_stream),
    "test_torchtitan": ("replay", "interpreter.txt", test_torchtitan.test_torchtitan),
    "test_vllm": ("vllm", "vllm.txt", test_vllm.test_vllm),
}
# Lines that a tool writes into a file of its own: NCCL's where NCCL_DEBUG_FILE says, NetPIPE's rows where -o says.
APART = {
    "nccl.txt": ("nccl_network.txt", re.compile(r" NCCL INFO ")),
    "netpipe.txt": ("netpipe_results.txt", re.compile(r"^ *\d+ +[\d.]+ +[\d.]+ *$")),
}


def _prepare(made: Replay, entry: dict[str, Any], name: str) -> None:
    """Put a recording where the stand-ins read it. Of Lustre the kernel counts nothing, as no recording says it."""
    made.program("stat", "echo lustre")
    made.program("interpreter", f'cat "$RECORDED/{name}"')
    made.program("nvbandwidth", f'cat "$RECORDED/{name}"')
    made.program("alltoall_perf", f"exec {shlex.quote(str(made.programs / 'all_reduce_perf'))}")
    made.fields.update(python="interpreter")
    if "layout" in entry:
        nodes, per_node = map(int, entry["layout"].split("x"))
        made.fields.update(nodes=nodes, devices=nodes * per_node, devices_per_node=per_node)
    lines = (FOLDER / entry["file"]).read_text().splitlines(keepends=True)
    apart, pattern = APART.get(name, ("", re.compile(r"(?!)")))
    if apart:
        (made.recorded / apart).write_text("".join(line for line in lines if pattern.search(line.rstrip("\n"))))
    rest = "".join(line for line in lines if not pattern.search(line.rstrip("\n")))
    (made.recorded / name).write_text(rest)


@pytest.mark.parametrize("entry", ENTRIES, ids=[Path(entry["file"]).stem for entry in ENTRIES])
def test_a_recording_is_read_or_refused(entry: dict[str, Any], request: pytest.FixtureRequest) -> None:
    fixture, name, test = TESTS[entry["test"]]
    made: Replay = request.getfixturevalue(fixture)
    _prepare(made, entry, name)
    done = made.job(test, STREAM_C=__file__, VLLM_MODEL="m", MEGATRON="pretrain_gpt.py", **entry.get("env", {}))
    assert done.returncode == 0, done.stdout + done.stderr
    if "refused" in entry:
        with pytest.raises((AssertionError, ValueError), match=re.escape(entry["refused"])):
            made.body(test)
        assert not made.metrics
    else:
        made.body(test)
        assert {key: value for key, (value, _, _) in made.metrics.items()} == pytest.approx(entry["metrics"], rel=1e-3)


def test_each_recording_has_one_entry_which_says_where_it_is_from() -> None:
    for entry in ENTRIES:
        assert entry.keys() >= {"file", "tool", "version", "source", "test", "differs"}, entry["file"]
        assert len(entry.keys() & {"metrics", "refused"}) == 1, entry["file"]
        assert entry.keys() <= {
            *("file", "tool", "version", "source", "test", "differs"),
            *("made", "layout", "env", "metrics", "refused", "fault"),
        }, entry["file"]
        assert re.match(r"run here|github\.com/\S+", entry["source"]), entry["file"]
    named = [(FOLDER / entry["file"]).resolve() for entry in ENTRIES]
    assert len(set(named)) == len(named)
    assert {path for path in FOLDER.iterdir() if path.name != "table.yaml"} <= set(named)


def test_the_table_is_broad() -> None:
    """Many tools, no tool that outweighs the others, and refusals among them."""
    tools = Counter(entry["tool"] for entry in ENTRIES)
    assert len(tools) >= 14
    assert max(tools.values()) <= 4
    assert len({(entry["tool"], entry["differs"]) for entry in ENTRIES}) == len(ENTRIES)


def test_the_readme_says_which_versions_are_read_and_what_is_not() -> None:
    """The README's lines are made of the table: where they differ, the failure shows the right ones."""
    lines = []
    for tool in sorted({entry["tool"] for entry in ENTRIES}, key=str.lower):
        of = [entry for entry in ENTRIES if entry["tool"] == tool]  # in the table from old to new
        read = [entry["version"] for entry in of if "metrics" in entry]
        others = [entry for entry in of if "refused" in entry and not entry.get("fault")]
        unread = "; ".join(f"{entry['version']}: {entry['differs']}" for entry in others)
        lines.append(f"| {tool} | {read[0]} | {read[-1]} | {unread or '-'} |")
    text = (ROOT / "catalogue" / "README.md").read_text()
    found = [line for line in text.splitlines() if line in lines or re.match(r"\| (?!`|---|test |tool )", line)]
    assert found == lines, "\n".join(lines)
