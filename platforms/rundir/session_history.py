"""Reads the records that sessions have left in runs/<run id>/sessions, one file for each session (docs/resuming.md).

When a session takes over another, it goes on with the other's tests. This module reads a record together with all that
its session has taken over. session_journal.py writes the record of the session that runs now.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platforms.job import RefusedError, job_key

SCHEMA = 1
FOLDER = "sessions"
BEAT_S = 5.0  # the shortest time between two signs of life
NOT_RUNS = frozenset(("old", "archives"))  # folders beside the runs: archived runs, and code
FIRST_LINE_KEYS = frozenset(("began_s", "host", "process", "beat_s", "plan"))

DONE = "done"  # how a session ended: every job has its result, or was cancelled
PENDING = "pending"  # how a session ended: some jobs go on without it
ASKED = "being submitted"  # the state of a job while its scheduler has been asked and has not answered


@dataclass(frozen=True)
class Attempt:
    """Which attempt of a test a job is.

    Attributes:
        earlier: how the attempts ended that the machine failed, a sentence each.
        avoid: nodes on which it must not run, if its scheduler can be asked for that.
        asked_s: when its scheduler was asked to submit it, in Unix seconds; None if it was not. A job may exist from
            then on, even if no id is known.
        ending: a session has begun to cancel it.
    """

    number: int = 1
    earlier: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    asked_s: float | None = None
    ending: bool = False

    @classmethod
    def from_journal(cls, line: Mapping[str, Any]) -> Attempt:
        """Read it from a job's line in a journal."""
        return cls(
            number=int(line.get("attempt", 1)),
            earlier=tuple(line.get("earlier", ())),
            avoid=tuple(line.get("avoid", ())),
            asked_s=line.get("asked_s"),
            ending=bool(line.get("ending")),
        )

    def journal_entry(self) -> dict[str, object]:
        """Its part of a job's line in a journal."""
        return {
            "attempt": self.number,
            "earlier": self.earlier,
            "avoid": self.avoid,
            "asked_s": self.asked_s,
            "ending": self.ending,
        }


FIRST = Attempt()


@dataclass(frozen=True)
class SessionRecord:
    """What the file of a session says.

    Attributes:
        process: of the session, to find out whether it lives (session_liveness.py).
        beat_s: how often the session gives a sign of life.
        plan: its tests and options, as it wrote them at its start.
        options: by test, the options with which the test was selected; also of tests that it took over.
        attempts: by the key of a job (JobSpec.key), the last attempt that was begun.
        states: by the key of a job, the last line about it.
        take_overs: names of the sessions that it has taken over, or has tried to.
        end: DONE or PENDING; None while it lives, or if it was killed.
        successor: the session that has taken it over; "" if that one was killed before it wrote its name.
    """

    name: str
    path: Path
    began_s: float = 0.0
    host: str = ""
    process: Mapping[str, Any] = field(default_factory=dict)
    beat_s: float = BEAT_S
    plan: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    take_overs: frozenset[str] = frozenset()
    end: str | None = None
    successor: str | None = None

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(self.options)

    @property
    def open(self) -> bool:
        """Another session may take it over."""
        return self.end != DONE and self.successor is None

    @property
    def beat_at_s(self) -> float:
        """When it gave its last sign of life, by the file system's clock."""
        return self.path.stat().st_mtime

    def __str__(self) -> str:
        return f"session {self.name} (process {self.process.get('pid')} on {self.host})"


# --- one session -----------------------------------------------------------------------------------------------------


def read_session(path: Path) -> SessionRecord | None:
    """What a session's own file says, without what it has taken over.

    Returns:
        None if not even the first line is complete: the session had done nothing yet.

    Raises:
        RefusedError: the file may not be read, or is not one that this version understands.
    """
    lines = _read_lines(path)
    if not lines:
        return None
    head = lines[0]
    if head.get("schema", SCHEMA) != SCHEMA:
        newer = f"it has the schema {head['schema']}, and this checkout knows {SCHEMA}: a newer one reads it"
        raise RefusedError(f"{path} cannot be read: {newer}")
    if not head.keys() >= FIRST_LINE_KEYS:
        raise RefusedError(f"{path} cannot be read: it does not begin as the record of a session does")
    plan = head["plan"]
    states: dict[str, Mapping[str, Any]] = {}
    take_overs = set()
    end = None
    for line in lines[1:]:
        if "test" in line:
            states[job_key(str(line["test"]), str(line.get("trial", "")))] = line
        if "takes" in line:
            take_overs.add(str(line["takes"]))
        if "end" in line:
            end = str(line["end"])
    return SessionRecord(
        name=path.stem,
        path=path,
        began_s=head["began_s"],
        host=head["host"],
        process=head["process"],
        beat_s=head["beat_s"],
        plan=plan,
        options=dict.fromkeys((*plan.get("tests", ()), *_tests_of(states)), plan.get("options", {})),
        attempts={key: Attempt.from_journal(line) for key, line in states.items()},
        states=states,
        take_overs=frozenset(take_overs),
        end=end,
        successor=read_successor(path),
    )


def _tests_of(states: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    return (str(line["test"]) for line in states.values())


def files_of_unfinished(run_folder: Path) -> list[Path]:
    """The files of a run's sessions that do not end with DONE. Only their ends are read. Raises RefusedError, OSError.

    Such a session lives, was killed, or has left jobs behind; another one may have taken it over.
    """
    done = json.dumps({"end": DONE})[1:].encode() + b"\n"
    return [path for path in _session_files(run_folder) if _last_bytes(path, len(done)) != done]


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read(count)


def read_successor(path: Path) -> str | None:
    """The session that has taken over the session with this file; "" if its name is not written yet."""
    try:
        name, newline, _ = path.with_suffix(".taken").read_text().partition("\n")
    except OSError:
        return None
    return name if newline else ""


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a file; an empty dict for a line that is not a JSON object."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"the record of a session cannot be read: {error}") from None
    lines: list[dict[str, Any]] = []
    for line in content.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        lines.append(value if isinstance(value, dict) else {})
    return lines


# --- the sessions of a run -------------------------------------------------------------------------------------------


def read_sessions(run_folder: Path) -> list[SessionRecord]:
    """The sessions of a run, the oldest first, each with all that it has taken over.

    A file that is torn at its end is read as far as it goes. Raises RefusedError.
    """
    records = []
    for path in _session_files(run_folder):
        record = read_session(path)
        if record is not None:
            records.append(record)
    return sorted(_merge_take_overs(records), key=lambda record: (record.began_s, record.name))


def _merge_take_overs(records: Sequence[SessionRecord]) -> Iterable[SessionRecord]:
    """Merge each session into the one that took it over, in the order of the take-overs.

    There may be thousands.
    """
    merged = {record.name: record for record in records}
    successors = {}
    for record in records:
        successor = _successor(record, records)
        if successor in merged:
            successors[record.name] = successor
    missing = Counter(successors.values())  # how many sessions are still to be merged into each
    complete = [name for name in merged if not missing[name]]
    for name in complete:  # grows while it is walked
        successor = successors.get(name)
        if successor is None:
            continue
        merged[successor] = _merge(merged[successor], merged[name])
        missing[successor] -= 1
        if not missing[successor]:
            complete.append(successor)
    return merged.values()


def _successor(record: SessionRecord, records: Sequence[SessionRecord]) -> str | None:
    """The name of the session that has taken a session over.

    If that is not written, it is one that said it would. An open one is more likely: the others were too late, and have
    ended.
    """
    if record.successor != "":
        return record.successor
    candidates = [other for other in records if record.name in other.take_overs]
    if not candidates:
        return None
    return max(candidates, key=lambda other: (other.open, other.began_s)).name


def _merge(successor: SessionRecord, record: SessionRecord) -> SessionRecord:
    """Merge two sessions, keeping each job's later attempt."""
    attempts = {**successor.attempts}
    states = {**successor.states}
    for key, attempt in record.attempts.items():
        if key not in attempts or attempt.number > attempts[key].number:
            attempts[key] = attempt
            states[key] = record.states[key]
    return replace(successor, options={**record.options, **successor.options}, attempts=attempts, states=states)


def site_name(run_folder: Path) -> str | None:
    """The site's name when a run began, which all its lines in the history have.

    None for a new run, and one of older sessions. Raises RefusedError.
    """
    names = (record.plan.get("site_name") for record in read_sessions(run_folder))
    return next(filter(None, names), None)


# --- all runs --------------------------------------------------------------------------------------------------------


def runs_with_sessions(runs: Path) -> list[str]:
    """The ids of runs that have the record of a session, and of runs that may not be looked into.

    Raises RefusedError if the folder of all runs cannot be read.
    """
    try:
        with os.scandir(runs) as entries:
            names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RefusedError(f"the runs cannot be read: {error}") from None
    visible = [name for name in names - NOT_RUNS if not name.startswith(".")]
    return sorted(name for name in visible if _may_have_sessions(runs / name))


def _may_have_sessions(run_folder: Path) -> bool:
    try:
        return bool(_session_files(run_folder))
    except RefusedError:
        return True


def _session_files(run_folder: Path) -> list[Path]:
    """The files of a run's sessions. Raises RefusedError."""
    try:
        with os.scandir(run_folder / FOLDER) as entries:
            return [Path(entry.path) for entry in entries if entry.name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RefusedError(f"the record of a session cannot be read: {error}") from None
