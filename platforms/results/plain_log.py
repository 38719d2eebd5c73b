"""A job's log as its program printed it: without launchers' prefixes, colours, and the suite's own lines.

The file stays as it is. Some prefixes say themselves what they are: the tags of mpirun. Others could be rows of the
program, as `0: 12.5`. They are labels of a launcher if the suite's own lines have them, too, or if a stretch of lines
shows it: each has one, they are ranks and no index that counts up, and what stands behind them is no single table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path

from platforms.results.wire import ESCAPES, wire_lines

# `[1,0]<stdout>:` of `mpirun --tag-output`, `[host-12@1,0][node:34]<stdout>: ` of OpenMPI 5, with or without the time
# before it. mpirun writes one wherever a piece of output begins, so also in the middle of a row.
_TIME = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}"
_RANK = r"\[[^][\s,]+,\d+\](?:\[[^][\s:]+:\d+\])?|\[\d+\]"
_TAG = re.compile(rf"((?:(?:{_TIME})?(?:{_RANK})|{_TIME})<std(?:out|err|diag)>):")
# `0: ` of `srun -l`, `[0] ` of MPICH, `[rank0]:` of torchrun
_LABELS = tuple(map(re.compile, (r" *(\d{1,6}):(?= |$)", r"\[(\d{1,6})\](?= |$)", r"\[[A-Za-z_]+(\d{1,6})\]:")))
_DECODER = json.JSONDecoder()


def plain_text(log: str | Path) -> str:
    """What the program of a job printed; each line ends in a newline.

    Args:
        log: the text of the log, or the path of its file.
    """
    return next(readings(log))


def readings(log: str | Path) -> Iterator[str]:
    """The texts that a pattern may be meant for: the plain one, that without any label, that with all prefixes."""
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log
    text = ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    rows = text.removesuffix("\n").split("\n") if text else []
    lines, befores = _without_wire(_by_writer(rows) if "<std" in text else rows)
    for every in (False, True):
        yield _joined(_without_labels(lines, befores, every))
    yield _joined(_without_wire(rows)[0])


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _by_writer(rows: list[str]) -> Iterator[str]:
    """The lines without tags: pieces that have the same tag are one line, even where another writer stands between."""
    split = [_TAG.split(row) for row in rows]
    blank = _blank(piece for _, *tagged in split for piece in tagged[1::2])
    begun: dict[str, str] = {}  # writer -> its line so far
    for untagged, *tagged in split:
        if untagged or not tagged:
            yield untagged
        for tag, piece in zip(tagged[::2], tagged[1::2], strict=True):
            writer = re.sub(_TIME, "", tag)
            begun[writer] = begun.get(writer, "") + piece.removeprefix(blank)
        if tagged:
            yield begun.pop(writer)
    yield from begun.values()


def _blank(rests: Iterable[str]) -> str:
    """The blank that some launchers write behind a prefix: what stands behind each of them, if any."""
    return " " if all(rest.startswith(" ") for rest in rests if rest) else ""


def _without_wire(rows: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lines without those of the suite, and what stood before these on their lines."""
    lines = []
    befores = []
    for row in rows:
        begin = 0
        for start, end, _ in wire_lines(row, _DECODER):
            before = row[begin:start]
            befores.append(before.rstrip())
            if before.strip() and not any(label.fullmatch(befores[-1]) for label in _LABELS):
                lines.append(before)
            begin = end
        if not begin or row[begin:].strip():
            lines.append(row[begin:])
    return lines, befores


def _without_labels(lines: list[str], befores: list[str], every: bool) -> list[str]:
    """Take off the labels that are a launcher's; every: whatever could be one."""
    for label in _LABELS:
        found = [label.match(line) for line in lines]
        stretches = [[match for match in some if match] for there, some in groupby(found, bool) if there]
        if stretches and (every or any(map(label.fullmatch, befores)) or any(map(_are_ranks, stretches))):
            blank = _blank(match.string[match.end() :] for match in found if match)
            lines = [
                line[match.end() :].removeprefix(blank) if match else line
                for line, match in zip(lines, found, strict=True)
            ]
    return lines


def _are_ranks(stretch: list[re.Match[str]]) -> bool:
    """Whether the labels of lines that follow each other show that they are those of the ranks that wrote the lines."""
    ranks = [int(match[1]) for match in stretch]
    kinds = {re.sub(r"[^\s#=:|,]+", "x", match.string[match.end() :]) for match in stretch}
    counts_up = any(ranks) and all(before <= after for before, after in pairwise(ranks))
    return 0 in ranks and not counts_up and len(kinds) > 1
