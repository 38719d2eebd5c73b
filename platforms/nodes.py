"""Lists of node names as people and Slurm write them: `n01,n03..n20`, `n[01-20]`."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_MOST = 100_000  # a list of more names is a mistake, and would fill the memory


def node_names(text: str) -> tuple[str, ...]:
    """Expand a list of nodes into names, in its order, each once.

    Args:
        text: names and ranges with commas between them. `n01..n20` and Slurm's `n[01-20]` are the same range.

    Raises:
        ValueError: it is no such list; the message is a sentence.
    """
    names: dict[str, None] = {}
    for part in _parts(text):
        names.update(dict.fromkeys(_range_names(part) if ".." in part else bracket_names(part)))
        if len(names) > _MOST:
            raise ValueError(f"{text!r} names more than {_MOST} nodes")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a node: write names and ranges, as in n01,n03..n20 or n[01-20]")
    return tuple(names)


def bracket_names(part: str) -> tuple[str, ...]:
    """Expand the brackets of one element of Slurm's lists: `cn[1-3,07]`. Raises ValueError."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        return (part,)
    ranges, closing, tail = rest.partition("]")
    if not closing:
        raise ValueError(f"{part!r} is no list of nodes: a bracket is not closed, as in n[01-20]")
    endings = bracket_names(tail)
    names: list[str] = []
    for piece in ranges.split(","):
        low, dash, high = piece.partition("-")
        for number in _numbers(low, high if dash else low, part):
            names += [f"{head}{number}{ending}" for ending in endings]
        if len(names) > _MOST:
            raise ValueError(f"{part!r} names more than {_MOST} nodes")
    return tuple(names)


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets. An empty part, as in `n1,,n2`, is an empty name."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)]


def _range_names(part: str) -> list[str]:
    """Expand `n01..n20`: the two names differ in one number."""
    first, _, last = part.partition("..")
    pieces = re.split(r"(\d+)", first)
    last_pieces = re.split(r"(\d+)", last)
    differing = [place for place, pair in enumerate(zip(pieces, last_pieces, strict=False)) if pair[0] != pair[1]]
    if first == last and first:
        return [first]
    if len(pieces) != len(last_pieces) or len(differing) != 1 or differing[0] % 2 == 0:
        raise ValueError(f"{part!r} is no range of nodes: the two names differ in one number, as in n01..n20")
    place = differing[0]
    head = "".join(pieces[:place])
    tail = "".join(pieces[place + 1 :])
    return [f"{head}{number}{tail}" for number in _numbers(pieces[place], last_pieces[place], part)]


def _numbers(low: str, high: str, part: str) -> list[str]:
    """The numbers of a range, as wide as its first."""
    is_range = re.fullmatch(r"\d+", low) and re.fullmatch(r"\d+", high) and int(low) <= int(high)
    if not is_range:
        raise ValueError(f"{part!r} is no range of nodes: it goes from a number to a larger one, as in n01..n20")
    if int(high) - int(low) >= _MOST:
        raise ValueError(f"{part!r} names more than {_MOST} nodes")
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
