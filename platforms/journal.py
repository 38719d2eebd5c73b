"""What each session of a run did, written by it alone as it happens, so that another one can go on where it ended.

A session's file is runs/<run id>/sessions/<session>.jsonl. It is created with O_EXCL, and nobody else writes to it;
whoever goes on in its place says so in its own file and then creates <session>.taken with O_EXCL. So no file system
needs to know locks. That a session lives is seen at its process, on this machine, and elsewhere at its file's time,
which it moves on with every beat and which is compared with a time that the same file system has just given
(docs/resuming.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platforms.job import BenchError, RefusedError

SCHEMA = 1
FOLDER = "sessions"
BEAT_S = 5.0  # the least between two beats
NO_RUNS = frozenset(("old", "archives"))  # beside the runs: those that were put away, and code
MISSED = 3  # beats, after which a session is taken for dead
POLL_S = 0.5
HEAD = frozenset(("began_s", "host", "process", "beat_s", "plan"))  # what a session's first line must say

DONE = "done"  # every job has its result, or was cancelled
PENDING = "pending"  # some jobs go on without a session
ASKED = "being submitted"  # of a job: a scheduler has been asked, and has not answered yet


class TakenOver(BenchError):
    """Another session goes on in this one's place, since it gave no sign of life."""


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

    def entry(self) -> dict[str, object]:
        """As it stands in a job's line."""
        return {"attempt": self.number, **{name: value for name, value in vars(self).items() if name != "number"}}


FIRST = Attempt()


@dataclass(frozen=True)
class Past:
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


class Journal:
    """This session's own file. Its methods may be called by any thread.

    Args:
        folder: the run's, runs/<run id>.
        plan: what another session needs to go on: the tests, the options.
        beat_s: between two signs of life; those of a session whose scheduler is asked rarely may be rare.
    """

    def __init__(self, folder: Path, plan: Mapping[str, object], beat_s: float = BEAT_S) -> None:
        self._beat_s = max(BEAT_S, beat_s)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._torn = b""  # what ends a line of which only a part was written
        self.name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
        self.path = folder / FOLDER / f"{self.name}.jsonl"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o644)
        except OSError as error:
            raise _not_kept(error) from None
        head = {"schema": SCHEMA, "session": self.name, "began_s": time.time(), "host": platform.node()}
        self._write([{**head, "process": _this_process(), "beat_s": self._beat_s, "plan": plan}])
        self._thread = threading.Thread(target=self._live, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def taken(self) -> str | None:
        """The session that goes on in our place."""
        return taken(self.path)

    @property
    def ended(self) -> bool:
        """Nothing is written any more, while a platform's turn may still be under way."""
        return self._file < 0

    def lost(self) -> bool:
        """Whether another session goes on in our place, looked for now: before something is done that cannot be undone,
        since a frozen process may go on there, and not at its next beat."""
        _file_system_s(self.path.parent)  # a client of NFS believes for a while that a name is not there
        if self.taken is not None:
            self._over.set()
        return self.taken is not None

    def refuse_taken(self) -> None:
        """Raises TakenOver, as soon as a beat, or who looked, has found it."""
        if self._over.is_set() and (other := self.taken) is not None:
            raise TakenOver(
                f"session {self.name} gave no sign of life for {MISSED * self._beat_s:g} s, and session "
                f"{other or 'another'} goes on in its place; nothing was cancelled"
            )

    def takes(self, past: Past) -> bool:
        """Go on in its place: then what it had is ours, though we should be killed at once. False when somebody else
        was quicker. Raises RefusedError."""
        self.jobs([{"takes": past.name}])
        return take(past, self.name)

    def jobs(self, lines: Iterable[Mapping[str, object]]) -> None:
        """What has become of some jobs, a line each, on the disk when it returns. Raises RefusedError."""
        self._write([{"at_s": time.time(), **line} for line in lines])

    def end(self, how: str) -> None:
        """DONE or PENDING; where that cannot be written, the run stays open. Nothing is written any more."""
        self._over.set()
        with contextlib.suppress(RefusedError):
            self._write([{"at_s": time.time(), "end": how}])
        with self._lock:
            os.close(self._file)
            self._file = -1

    def touched_s(self) -> float:
        """The file system's time, now."""
        os.utime(self.path)
        return self.path.stat().st_mtime

    def _write(self, lines: Sequence[Mapping[str, object]]) -> None:
        text = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
        with self._lock:
            if self._file < 0:  # a turn that was under way has come back after the end
                return
            text, self._torn = self._torn + text, b"\n"
            try:
                while text:
                    text = text[os.write(self._file, text) :]
                os.fsync(self._file)
            except OSError as error:
                raise _not_kept(error) from None
            self._torn = b""

    def _live(self) -> None:
        while not self._over.wait(self._beat_s):
            try:
                os.utime(self.path)
            except OSError:
                continue  # the disk may be away for a while
            if self.taken is not None:
                self._over.set()


def _not_kept(error: OSError) -> RefusedError:
    return RefusedError(f"this session's record cannot be kept: {error}; --runs-dir names another place")


# --- those before us -------------------------------------------------------------------------------------------------


def sessions(folder: Path) -> list[Past]:
    """Of a run, oldest first, each with what it has taken over. A file that is torn at its end is read as far as it
    goes. Raises RefusedError."""
    found = [past for path in _files(folder) if (past := read(path)) is not None]
    return sorted(_with_taken(found), key=lambda past: (past.began_s, past.name))


def read(path: Path) -> Past | None:
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
    return Past(
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


def _with_taken(sessions: Sequence[Past]) -> Iterable[Past]:
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


def _heir(past: Past, sessions: Sequence[Past]) -> str | None:
    """The name of the session that has taken it over. Where that is not written, one that has said it would: rather one
    that is open, since who was not quick enough has ended."""
    if past.taken == "":
        said = [other for other in sessions if past.name in other.takes]
        return max(said, key=lambda other: (other.open, other.began_s)).name if said else None
    return past.taken


def _merged(past: Past, before: Past) -> Past:
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


def alive(
    past: Past,
    now_s: Callable[[], float],
    tell: Callable[[str], None] = lambda text: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether an open session goes on. Asks its process where that can be seen, else watches for its next beat, which
    takes three beats where it is dead. `now_s` gives the file system's time, Journal.touched_s."""
    if past.how is not None:
        return False
    if (seen := _seen_here(past)) is not None:
        return seen
    beat_s = past.beat_at_s
    if (rest_s := MISSED * past.beat_s - (now_s() - beat_s)) > 0:
        tell(f"whether {past} still lives is known in {rest_s:.0f} s at the latest")
    while now_s() - beat_s <= MISSED * past.beat_s:
        sleep(POLL_S)
        if past.beat_at_s > beat_s:
            return True
    return past.beat_at_s > beat_s


def lives(past: Past) -> bool:
    """Whether an open session seems to go on, without waiting for its next beat."""
    if past.how is not None or past.taken is not None:
        return False
    if (seen := _seen_here(past)) is not None:
        return seen
    now_s = _file_system_s(past.path.parent)
    return now_s - past.beat_at_s <= MISSED * past.beat_s


def _file_system_s(folder: Path) -> float:
    """The time of the file system, or where we may only read our own; a client of NFS looks at the folder anew."""
    probe = folder / f".now.{os.getpid()}.{threading.get_ident()}"
    try:
        probe.touch()
        now_s = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return time.time()
    return now_s


def take(past: Past, by: str) -> bool:
    """Go on in its place: False when somebody else was quicker. Raises RefusedError."""
    try:
        file = os.open(past.path.with_suffix(".taken"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    except OSError as error:
        raise _not_kept(error) from None
    with contextlib.suppress(OSError), os.fdopen(file, "w") as opened:  # that it is there counts
        opened.write(by + "\n")
        opened.flush()
        os.fsync(opened.fileno())
    return True


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


def _this_process() -> dict[str, object]:
    pid = os.getpid()
    return {"pid": pid, "began": _began(pid), "boot": _boot(), "space": _space()}


def _seen_here(past: Past) -> bool | None:
    """Whether a process of this machine, and of this container, lives; None for others, and where another user's are
    hidden (hidepid)."""
    process = past.process
    if process.get("boot") is None or (process["boot"], process.get("space")) != (_boot(), _space()):
        return None
    if (began := _began(int(process["pid"]))) is None and os.getuid() not in (0, past.path.stat().st_uid):
        return None
    return began == process.get("began")


def _began(pid: int) -> str | None:
    """When, in ticks since the machine was started: a pid is given again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _space() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
