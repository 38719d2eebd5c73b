"""Lines of a log -> `Run`, with its problems; and the numbers of programs that do not speak the wire."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from platforms.job import JobSpec, Run
from platforms.results import gates
from platforms.results.gates import number
from platforms.results.wire import Event, WireReader, clean


@dataclass(frozen=True)
class Progress:
    """The last that rank 0 said of how far it is. None: it did not say."""

    phase: str | None = None
    epoch: int | None = None
    step: int | None = None
    steps: int | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    left_s: float | None = None


class LogReader:
    """Follows one job's log: feed it the bytes as they come, cut anywhere, then ask it."""

    def __init__(self) -> None:
        self._progress: Mapping[str, object] | None = None
        self._wire = WireReader(self._take)
        self._starts = 0
        self._start: Mapping[str, object] = {}
        self._windows: dict[int, Mapping[str, object]] = {}
        self._summary: Mapping[str, object] = {}
        self._end: Mapping[str, object] | None = None
        self._end_seq = 0
        self._reported: dict[str, dict[str, set[int]]] = {}  # gate -> text -> ranks
        self._odd: dict[str, int] = {}
        self._handlers: Mapping[str, Callable[[Event, Mapping[str, object]], None]] = {
            "hpcml_start": self._on_start,
            "hpcml_progress": self._on_progress,
            "hpcml_window": self._on_window,
            "hpcml_summary": self._on_summary,
            "hpcml_end": self._on_end,
        }

    @property
    def progress(self) -> Progress | None:
        """The last `hpcml_progress`."""
        said = self._progress
        if said is None:
            return None
        epoch, step, steps = (_whole(said.get(key)) for key in ("epoch", "step", "steps"))
        speed, loss, left_s = (number(said.get(key)) for key in ("samples_per_s", "loss", "left_s"))
        return Progress(_text(said.get("phase")), epoch, step, steps, speed, loss, left_s)

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
        """What the job itself said its exit code would be."""
        code = self._end.get("exit_code") if self._end is not None else None
        return code if type(code) is int else None

    @property
    def tail(self) -> deque[str]:
        """The last 30 lines for people."""
        return self._wire.tail

    @property
    def complete(self) -> bool:
        """Whether the log alone would let the job pass: end mark with exit code 0, a summary, windows, all finite."""
        return not self.why_incomplete

    @property
    def why_incomplete(self) -> str:
        """One sentence; empty when the log is complete."""
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
        windows, problems = gates.windows_of(self._windows)
        if windows and len(windows) == len(self._windows):
            return ""
        return "; ".join(problems) or "the log has no hpcml_window"

    def contradictions(self, last_word: str) -> list[str]:
        """What the job said at its end by another way than its log, and the log does not; [] when it said nothing."""
        try:
            word = json.loads(last_word)
        except ValueError:
            return []  # somebody's own text
        if not isinstance(word, dict) or "schema" not in word:
            return []
        own = {**self._summary, **(self._end or {})}
        return [
            f"last word: {key} is {value!r} there, and {own.get(key)!r} in the log"
            for key, value in word.items()
            if key != "schema" and not gates.same(value, own.get(key))
        ]

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the log."""
        self._wire.feed(chunk)

    def finish(self, spec: JobSpec | None = None) -> Run:
        """What the log says, checked against itself and against `spec`; status and folder are the caller's to add.

        A program that says nothing on the wire, and was not asked to, gives a Run without windows and without problems.
        """
        self._wire.close()
        windows, odd_windows = gates.windows_of(self._windows)
        run = Run(
            name=spec.name if spec else "",
            test=spec.test if spec else "",
            platform=spec.platform if spec else "",
            benchmark=spec.benchmark if spec else _text(self._start.get("benchmark")),
            layout=str(spec.layout) if spec else "",
            windows=windows,
            start=dict(self._start),
            summary=dict(self._summary),
        )
        if not self.speaks_wire:
            silent = spec is not None and spec.benchmark is not None
            return replace(run, problems=(self.why_incomplete,) if silent else ())
        problems = [*self._reports(), *self._wire_problems(), *self._gaps(), *odd_windows]
        whole = replace(run, summary={}) if odd_windows else run  # the sums of some windows say nothing
        problems += [text for gate, text in gates.contradictions(whole, spec) if gate not in self._reported]
        warnings = [str(text) for text in _list(self._summary.get("warnings"))]
        said = {text.split(":")[0] for text in warnings}
        warnings += [text for text in gates.doubts(run, spec) if text.split(":")[0] not in said]
        return replace(run, problems=tuple(problems), warnings=tuple(warnings))

    # --- what is wrong ---

    def _reports(self) -> list[str]:
        """What the job's own gates said, one sentence a gate."""
        sentences = []
        for gate, texts in self._reported.items():
            text, ranks = next(iter(texts.items()))
            others = len(set().union(*texts.values())) - 1
            more = f" and {others} more" if others else ""
            sentences.append(clean(f"{gate}: {text} (rank {min(ranks)}{more})"))
        return sentences

    def _wire_problems(self) -> list[str]:
        if self._starts > 1:  # then numbers repeat and nothing below says more
            return [f"{self._starts} runs wrote to this log: hpcml_start stands there {self._starts} times"]
        return [*self._wire.problems(), *(f"{kind}: {count}" for kind, count in self._odd.items())]

    def _gaps(self) -> list[str]:
        """What should stand in every log and does not. A job that ended badly need not have measured anything."""
        code = self.exit_code
        wanted = {"hpcml_start": self._start, "hpcml_window": self._windows, "hpcml_summary": self._summary}
        missing = [key for key, value in wanted.items() if not value] if not code else []
        missing += ["hpcml_end"] if self._end is None else []
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

    # --- what is said ---

    def _take(self, event: Event) -> None:
        value = event.value if isinstance(event.value, Mapping) else None
        if event.key == "hpcml_problem":
            gate, text = (str((value or {}).get(key) or "?") for key in ("gate", "text"))
            self._reported.setdefault(gate, {}).setdefault(text, set()).add(event.rank)
        elif event.key in self._handlers and (event.rank != 0 or value is None):
            self._count("wire lines by a rank that should not write them, or without a value")
        elif value is not None and event.key in self._handlers:
            self._handlers[event.key](event, value)

    def _count(self, kind: str) -> None:
        self._odd[kind] = self._odd.get(kind, 0) + 1

    def _on_start(self, event: Event, value: Mapping[str, object]) -> None:
        self._starts += 1
        if self._starts > 1:  # what the first run said is not this one's
            self._windows, self._summary, self._end = {}, {}, None
        self._start = value

    def _on_progress(self, event: Event, value: Mapping[str, object]) -> None:
        self._progress = value

    def _on_window(self, event: Event, value: Mapping[str, object]) -> None:
        index = _whole(value.get("index"))
        if index is None or index < 0:
            self._count("windows without an index")
        elif index in self._windows:
            self._count("windows that stand in the log twice")
        else:
            self._windows[index] = value

    def _on_summary(self, event: Event, value: Mapping[str, object]) -> None:
        if self._summary:
            self._count("summaries too many")
        self._summary = value

    def _on_end(self, event: Event, value: Mapping[str, object]) -> None:
        self._end, self._end_seq = value, event.seq


def parse(log: bytes | str | Iterable[bytes | str], spec: JobSpec | None = None) -> Run:
    """A whole log, or its lines, at once."""
    reader = LogReader()
    if isinstance(log, bytes | str):
        reader.feed(_bytes(log))
    else:
        for line in log:
            reader.feed(_bytes(line).rstrip(b"\n") + b"\n")
    return reader.finish(spec)


def numbers(log: str | Path, pattern: str) -> list[float]:
    """Every number that `pattern` finds in a text or file: its first group, or the whole match.

    For programs that do not speak the wire.
    `^` and `$` are ends of lines. Raises ValueError where something that matches is no finite number.
    """
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log
    found = []
    for match in re.finditer(pattern, text, re.MULTILINE):
        word = match[1] if match.re.groups else match[0]
        try:
            value = float(word)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ValueError(f"{pattern!r} matches {match[0]!r}, and {word!r} is no finite number")
        found.append(value)
    return found


def _bytes(text: bytes | str) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
