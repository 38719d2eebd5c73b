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
from platforms.results.writers import Writers

# `0: ` of `srun -l`, `[0] ` of MPICH, `[rank0]:` of torchrun
_LABELS = tuple(map(re.compile, (r" *(\d{1,6}):(?= |$)", r"\[(\d{1,6})\](?= |$)", r"\[[A-Za-z_]+(\d{1,6})\]:")))
# srun and its daemon begin their lines where a program has left its own open.
_OF_SLURM = re.compile(
    r"(?<!^)(?=(?:srun|slurmstepd): (?:error|warning|fatal|info|job|step|force|terminating)\b)", re.I | re.M
)
_DECODE = json.JSONDecoder().raw_decode


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
    writers = Writers()
    lines, befores = _without_wire([*writers.lines(rows), *writers.rest()])
    for every in (False, True):
        yield _joined(_without_labels(lines, befores, every))
    yield _joined(_without_wire(rows)[0])


def _joined(lines: list[str]) -> str:
    text = "\n".join(lines) + "\n" * bool(lines)
    return _OF_SLURM.sub("\n", text) if "srun: " in text or "slurmstepd: " in text else text  # not to search for long


def _without_wire(rows: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the lines without those of the suite, and what stood before these on their lines."""
    lines = []
    befores = []
    for row in rows:
        begin = 0
        for start, end, _ in wire_lines(row, _DECODE):
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
        of_suite = sum(label.fullmatch(before) is not None for before in befores)  # one could be a row left open
        if stretches and (every or 2 * of_suite > len(befores) or any(map(_are_ranks, stretches))):
            tight = any(match.string[match.end() :][:1].strip() for match in found if match)
            blank = "" if tight else " "  # some launchers write one behind each of their labels
            lines = [
                line[match.end() :].removeprefix(blank) if match else line
                for line, match in zip(lines, found, strict=True)
            ]
    return lines


def _are_ranks(stretch: list[re.Match[str]]) -> bool:
    """Whether the labels of lines that follow each other show that they are those of the ranks that wrote the lines."""
    ranks = [int(match[1]) for match in stretch]
    rests = [match.string[match.end() :] for match in stretch]
    counts_up = any(ranks) and all(before <= after for before, after in pairwise(ranks))
    if 0 not in ranks or (counts_up and " " not in rests):  # no program numbers its empty lines
        return False
    kinds = (re.sub(r"[^\s#=:|,]+", "x", rest) for rest in rests)
    first = next(kinds)
    return any(kind != first for kind in kinds)
