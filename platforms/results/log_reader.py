"""Reads a job's log while it grows and makes a Run of it, with its problems.

A worker thread of the runner feeds a LogReader; the main thread reads its progress.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from platforms.job import JobSpec, Metric, Run, split_refusal, throughput_unit
from platforms.results import gates
from platforms.results.gates import number
from platforms.results.wire import NODE, Event, WireReader, clean, readable

_OF_RANK_0 = {f"hpcml_{what}" for what in ("start", "progress", "window", "decomposition", "summary", "end")}


@dataclass(frozen=True)
class Progress:
    """How far rank 0 is, as it reported last. None: it did not report that."""

    phase: str | None = None
    epoch: int | None = None
    step: int | None = None
    steps: int | None = None
    throughput: Metric | None = None
    loss: float | None = None
    left_s: float | None = None


class LogReader:
    """Reads one job's log. Feed it the bytes as they come, cut anywhere; finish() makes the Run."""

    def __init__(self) -> None:
        self._wire = WireReader(self._handle_event)
        self._starts = 0
        self._last: dict[str, Mapping[str, object]] = {}  # key -> the last value; windows are apart
        self._windows: dict[int, Mapping[str, object]] = {}
        self._end_seq = 0
        self._reported: dict[str, dict[str, set[int]]] = {}  # gate -> text -> ranks, from the job's own gates
        self._said: tuple[str, ...] = ()  # by the compiler or the device that failed first: its first lines
        self._node_lines: dict[str, dict[int, Mapping[str, object]]] = {}  # node -> number of the line -> its value
        self._irregular: Counter[str] = Counter()  # kinds of irregular lines

    @property
    def _start(self) -> Mapping[str, object]:
        return self._last.get("hpcml_start", {})

    @property
    def _summary(self) -> Mapping[str, object]:
        return self._last.get("hpcml_summary", {})

    @property
    def _end(self) -> Mapping[str, object] | None:
        return self._last.get("hpcml_end")

    @property
    def progress(self) -> Progress | None:
        """The last `hpcml_progress`."""
        report = self._last.get("hpcml_progress")
        if report is None:
            return None
        rate = number(report.get("samples_per_s"))
        return Progress(
            phase=_text(report.get("phase")),
            epoch=_whole(report.get("epoch")),
            step=_whole(report.get("step")),
            steps=_whole(report.get("steps")),
            throughput=throughput_unit(self._start).metric(rate) if rate else None,
            loss=number(report.get("loss")),
            left_s=number(report.get("left_s")),
        )

    @property
    def speaks_wire(self) -> bool:
        """Whether any line of the wire came."""
        return self._wire.speaks_wire

    @property
    def ended(self) -> bool:
        """Whether `hpcml_end` came."""
        return self._end is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code that the job itself wrote at its end."""
        return None if self._end is None else _whole(self._end.get("exit_code"))

    @property
    def tail(self) -> deque[str]:
        """The last lines of the log that are meant for people."""
        return self._wire.tail

    @property
    def complete(self) -> bool:
        """Whether the log is that of a success: its end says exit code 0, and summary and windows are usable."""
        return not self.why_incomplete

    @property
    def why_incomplete(self) -> str:
        """Why the log is not complete, in one sentence; empty if it is."""
        if not self.speaks_wire:
            return "the log has no line of the wire (docs/wire.md): the program never began, or wrote elsewhere"
        if self._end is None:
            return "the log has no hpcml_end: the job was cut off"
        if self.exit_code != 0:
            return f"the job ended with exit code {self._end.get('exit_code')}"
        if not self._summary:
            return "the log has no hpcml_summary"
        lacking = [key for key in ("samples", "wall_s", "effective_throughput") if not number(self._summary.get(key))]
        if lacking:
            return f"hpcml_summary has no {', '.join(lacking)}"
        windows, problems = gates.windows_of(self._windows, split_refusal(self._summary))
        if windows and len(windows) == len(self._windows):
            return ""
        return "; ".join(problems) or "the log has no hpcml_window"

    def contradictions(self, last_word: str) -> list[str]:
        """Where the log contradicts the last word of the job, which came by another way than the log.

        Args:
            last_word: a JSON object (docs/wire.md), or any other text, which is ignored.
        """
        try:
            word = json.loads(last_word)
        except ValueError:
            return []
        if not isinstance(word, dict) or "schema" not in word:
            return []
        in_log = {**self._summary, **(self._end or {})}
        return [
            f"last word: {key} is {value!r} there, and {in_log.get(key)!r} in the log"
            for key, value in word.items()
            if key != "schema" and not gates.is_same(value, in_log.get(key))
        ]

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the log."""
        self._wire.feed(chunk)

    def finish(self, spec: JobSpec | None = None) -> Run:
        """What the log says, checked against itself and against `spec`; status and folder are the caller's to add.

        A program that says nothing on the wire, and was not asked to, gives a Run without windows and without problems.
        """
        self._wire.close()
        windows, window_problems = gates.windows_of(self._windows, split_refusal(self._summary))
        decomposition = self._last.get("hpcml_decomposition")
        run = Run(
            benchmark=_text(self._start.get("benchmark")),
            windows=windows,
            start=dict(self._start),
            summary={**self._summary, **({"decomposition": decomposition} if decomposition else {})},
            said=self._said,
            nodes=self._nodes(),
        )
        if spec is not None:
            run = spec.named(run)
        if not self.speaks_wire:
            run = replace(run, warnings=(*self._vet_warnings(), *self._node_warnings()))
            if spec is not None and spec.benchmark is not None:
                run = replace(run, problems=(self.why_incomplete,))
            return run
        problems = [*self._reported_problems(), *self._wire_problems(), *self._missing_parts(), *window_problems]
        # The sums of some of the windows cannot agree with the summary.
        checked = replace(run, summary={}) if window_problems else run
        problems += [text for gate, text in gates.contradictions(checked, spec) if gate not in self._reported]
        warnings = [str(text) for text in _list(self._summary.get("warnings"))]
        subjects = {text.split(":")[0] for text in warnings}
        warnings += self._vet_warnings()
        warnings += [text for text in gates.warnings_on(run, spec) if text.split(":")[0] not in subjects]
        return replace(run, problems=tuple(problems), warnings=tuple(warnings))

    @property
    def first_problem(self) -> str:
        """The first problem that the job itself reported, in one sentence; empty if it reported none."""
        return next(iter(self._reported_problems()), "")

    def _nodes(self) -> dict[str, dict[str, Mapping[str, object]]]:
        """The facts of each node by part. A long list stands in several lines."""
        nodes: dict[str, dict[str, Mapping[str, object]]] = {}
        for node, lines in self._node_lines.items():
            parts = nodes[node] = {}
            for _number, line in sorted(lines.items()):
                facts = line.get("facts")
                if isinstance(facts, Mapping):
                    part = str(line.get("part"))
                    before = _list(parts.get(part, {}).get("list"))
                    parts[part] = {**facts, "list": [*before, *_list(facts.get("list"))]} if before else facts
        return nodes

    def _vet_warnings(self) -> list[str]:
        """Warnings of `vet job`, which ran before the command: what is wrong although no node is unfit."""
        parts = [node.get("vet", {}) for node in self._nodes().values()]
        return list(dict.fromkeys(f"vet: {text}" for part in parts for text in _list(part.get("warnings"))))

    def _node_warnings(self) -> tuple[str, ...]:
        """What the nodes say of others' work, for a program that does not look itself; each subject once."""
        found: dict[str, list[str]] = {}
        for parts in self._nodes().values():
            for text in _list(parts.get("after", {}).get("warnings")):
                found.setdefault(str(text).partition(":")[0], []).append(str(text))
        return tuple(
            texts[0] if len(texts) == 1 else f"{texts[0]} (and on {len(texts) - 1} more nodes)"
            for texts in found.values()
        )

    # --- what is wrong ---

    def _reported_problems(self) -> list[str]:
        """The problems that the job's own gates have reported, one sentence for each gate."""
        sentences = []
        for gate, texts in self._reported.items():
            text, ranks = next(iter(texts.items()))
            others = len(set().union(*texts.values())) - 1
            more = f" and {others} more" if others else ""
            sentences.append(clean(f"{gate}: {text} (rank {min(ranks)}{more})"))
        return sentences

    def _wire_problems(self) -> list[str]:
        if self._starts > 1:  # then the numbers of lines repeat, and any other problem says nothing
            return [f"{self._starts} runs wrote to this log: hpcml_start stands there {self._starts} times"]
        return [*self._wire.problems(), *(f"{kind}: {count}" for kind, count in self._irregular.items())]

    def _missing_parts(self) -> list[str]:
        """What every log should have and this one lacks. A job that failed need not have measured anything."""
        code = self.exit_code
        there: dict[str, object] = {**self._last, "hpcml_window": self._windows}
        wanted = () if code else ("hpcml_start", "hpcml_window", "hpcml_summary", "hpcml_end")
        missing = [key for key in wanted if not there.get(key)]
        problems = [f"the log has no {', no '.join(missing)}"] if missing else []
        if self._end is None:
            return problems
        if code != 0:
            problems.append(f"the job ended with exit code {self._end.get('exit_code')}")
        if self._starts > 1:
            return problems
        if self._end.get("lines") != self._end_seq:
            counted = self._end.get("lines")
            problems.append(f"hpcml_end counts {counted} wire lines of rank 0 before it, and is number {self._end_seq}")
        if max(self._wire.seen.get(0, {0: 0})) > self._end_seq:
            problems.append("rank 0 wrote on after hpcml_end")
        return problems

    # --- events ---

    def _handle_event(self, event: Event) -> None:
        value = event.value if isinstance(event.value, Mapping) else None
        if event.key == "hpcml_problem":
            problem = value or {}
            gate = str(problem.get("gate") or "?")
            text = str(problem.get("text") or "?")
            self._reported.setdefault(gate, {}).setdefault(text, set()).add(event.rank)
            self._said = self._said or tuple(readable(str(line)) for line in _list(problem.get("said")))
            return
        if event.key == NODE:
            if value is not None:  # a line that comes again, or of a container that started again, replaces the first
                self._node_lines.setdefault(str(value.get("node")), {})[event.seq] = value
            return
        if event.key not in _OF_RANK_0:
            return
        if event.rank != 0 or value is None:
            self._irregular["wire lines by a rank that should not write them, or without a value"] += 1
        elif event.key == "hpcml_window":
            self._handle_window(value)
        else:
            self._handle_last(event, value)

    def _handle_window(self, value: Mapping[str, object]) -> None:
        index = _whole(value.get("index"))
        if index is None or index < 0:
            self._irregular["windows without an index"] += 1
        elif index in self._windows:
            self._irregular["windows that stand in the log twice"] += 1
        else:
            self._windows[index] = value

    def _handle_last(self, event: Event, value: Mapping[str, object]) -> None:
        if event.key == "hpcml_start":
            self._starts += 1
            if self._starts > 1:  # forget what an earlier run has written to this log
                self._windows = {}
                self._last = {}
        elif event.key == "hpcml_summary" and self._last.get(event.key):
            self._irregular["summaries too many"] += 1
        elif event.key == "hpcml_end":
            self._end_seq = event.seq
        self._last[event.key] = value


def parse(log: bytes | str | Iterable[bytes | str], spec: JobSpec | None = None) -> Run:
    """Read a whole log, or its lines, at once."""
    reader = LogReader()
    if isinstance(log, bytes | str):
        reader.feed(_bytes(log))
    else:
        for line in log:
            reader.feed(_bytes(line).rstrip(b"\n") + b"\n")
    return reader.finish(spec)


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
