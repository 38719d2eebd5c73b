"""What sessions have left: their files as they are read, each with what it has taken over from others."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platforms.job import RefusedError

SCHEMA = 1
FOLDER = "sessions"
BEAT_S = 5.0  # the least between two beats
NO_RUNS = frozenset(("old", "archives"))  # beside the runs: those that were put away, and code
HEAD = frozenset(("began_s", "host", "process", "beat_s", "plan"))  # what a session's first line must say

DONE = "done"  # every job has its result, or was cancelled
PENDING = "pending"  # some jobs go on without a session
ASKED = "being submitted"  # of a job: a scheduler has been asked, and has not answered yet


@dataclass(frozen=True)
class Attempt:
    """Which attempt of a test a job is. `earlier` says how those ended that the machine failed, and it begins again in
    their place, where that can be asked for on other nodes than `avoid`. `asked_s`: its scheduler was asked for it then
    (Unix seconds), so there may be a job whose id nobody knows. `ending`: a session has begun to cancel it."""

    number: int = 1
    earlier: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    asked_s: float | None = None
    ending: bool = False

    def journal_entry(self) -> dict[str, object]:
        """As it stands in a job's line."""
        return {"attempt": self.number, **{name: value for name, value in vars(self).items() if name != "number"}}


FIRST = Attempt()


@dataclass(frozen=True)
class SessionRecord:
    """A session as its file tells. `options` are those with which each test was selected, its own ones and those that
    it goes on with; `attempts` the last jobs of those that were begun, and `states` what was said of them last; `takes`
    the sessions in whose place it goes on, or would have; `how` it ended is None while it lives, or when it was killed;
    `taken` is the session that went on in its place, "" where that was killed before it had written its name."""

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
    takes: frozenset[str] = frozenset()
    how: str | None = None
    taken: str | None = None

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(self.options)

    @property
    def open(self) -> bool:
        """Somebody may go on with it."""
        return self.how != DONE and self.taken is None

    @property
    def beat_at_s(self) -> float:
        """When it gave its last sign of life, by the file system's clock."""
        return self.path.stat().st_mtime

    def __str__(self) -> str:
        return f"session {self.name} (process {self.process.get('pid')} on {self.host})"


def sessions(folder: Path) -> list[SessionRecord]:
    """Of a run, oldest first, each with what it has taken over. A file that is torn at its end is read as far as it
    goes. Raises RefusedError."""
    found = [past for path in _files(folder) if (past := read(path)) is not None]
    return sorted(_with_taken(found), key=lambda past: (past.began_s, past.name))


def read(path: Path) -> SessionRecord | None:
    """What a session's own file says. None when not even its first line is whole: then it had done nothing yet. Raises
    RefusedError where it may not be read, or is none that we understand."""
    if not (found := _lines(path)):
        return None
    head, *lines = found
    if head.get("schema", SCHEMA) != SCHEMA:
        newer = f"it has the schema {head['schema']}, and this checkout knows {SCHEMA}: a newer one reads it"
        raise RefusedError(f"{path} cannot be read: {newer}")
    if not head.keys() >= HEAD:
        raise RefusedError(f"{path} cannot be read: it does not begin as the record of a session does")
    known: dict[str, Any] = {name: head[name] for name in HEAD}
    states = {str(line["test"]): line for line in lines if "test" in line}
    return SessionRecord(
        path.stem,
        path,
        **known,
        options=dict.fromkeys((*head["plan"].get("tests", ()), *states), head["plan"].get("options", {})),
        attempts={test: _attempt(line) for test, line in states.items()},
        states=states,
        takes=frozenset(str(line["takes"]) for line in lines if "takes" in line),
        how=next((str(line["end"]) for line in reversed(lines) if "end" in line), None),
        taken=taken(path),
    )


def _attempt(line: Mapping[str, Any]) -> Attempt:
    lists: dict[str, Any] = {name: tuple(line.get(name, ())) for name in ("earlier", "avoid")}
    return Attempt(int(line.get("attempt", 1)), **lists, asked_s=line.get("asked_s"), ending=bool(line.get("ending")))


def _with_taken(sessions: Sequence[SessionRecord]) -> Iterable[SessionRecord]:
    """Each with what those had in whose place it goes on, one after the other: there may be thousands."""
    whole = {past.name: past for past in sessions}
    heirs = {past.name: heir for past in sessions if (heir := _heir(past, sessions)) in whole}
    waits = Counter(heirs.values())
    ready = [name for name in whole if not waits[name]]
    for name in ready:
        if (heir := heirs.get(name)) is not None:
            whole[heir] = _merged(whole[heir], whole[name])
            waits[heir] -= 1
            ready += [] if waits[heir] else [heir]
    return whole.values()


def _heir(past: SessionRecord, sessions: Sequence[SessionRecord]) -> str | None:
    """The name of the session that has taken it over. Where that is not written, one that has said it would: rather one
    that is open, since who was not quick enough has ended."""
    if past.taken == "":
        said = [other for other in sessions if past.name in other.takes]
        return max(said, key=lambda other: (other.open, other.began_s)).name if said else None
    return past.taken


def _merged(past: SessionRecord, before: SessionRecord) -> SessionRecord:
    """Of a test that both have begun, the later attempt."""
    older = {
        test: attempt
        for test, attempt in before.attempts.items()
        if test not in past.attempts or attempt.number > past.attempts[test].number
    }
    return replace(
        past,
        options={**before.options, **past.options},
        attempts={**past.attempts, **older},
        states={**past.states, **{test: before.states[test] for test in older}},
    )


def recorded(runs: Path) -> list[str]:
    """The ids of runs that have a session's file, and of those of which nobody can tell, since they may not be looked
    into. Raises RefusedError where that is so of all."""
    try:
        with os.scandir(runs) as found:
            names = {each.name for each in found if each.is_dir(follow_symlinks=False)} - NO_RUNS
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RefusedError(f"the runs cannot be read: {error}") from None
    return sorted(name for name in names if not name.startswith(".") and _has_files(runs / name))


def _has_files(folder: Path) -> bool:
    try:
        return bool(_files(folder))
    except RefusedError:
        return True


def _files(folder: Path) -> list[Path]:
    """Of a run's sessions. Raises RefusedError."""
    try:
        with os.scandir(folder / FOLDER) as found:
            return [Path(each.path) for each in found if each.name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RefusedError(f"the record of a session cannot be read: {error}") from None


def taken(path: Path) -> str | None:
    """Who has claimed to go on in the place of the session with that file; "" where nobody's name is there yet."""
    try:
        name, whole, _ = path.with_suffix(".taken").read_text().partition("\n")
    except OSError:
        return None
    return name if whole else ""


def _lines(path: Path) -> list[dict[str, Any]]:
    """Those that are whole; empty dicts for what is no JSON object."""
    found: list[dict[str, Any]] = []
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RefusedError(f"the record of a session cannot be read: {error}") from None
    for line in text.split(b"\n")[:-1]:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        found.append(value if isinstance(value, dict) else {})
    return found
