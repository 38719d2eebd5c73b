"""Runs one job on this machine to its end, even after its submitter has exited: limits, no orphans, one exit file.

One standard-library file for Python 3.8 and newer, run by path: `python supervisor.py FOLDER [key=value ...]`.

FOLDER/job.sh is the job. Its lines `#JOB key=value` are the settings, and arguments override them:

    name           how the job is called
    time_limit_s   the job is ended after that long (none: never)
    start_limit_s  it does not start later than that from now
    not_after      the same as a point in time (Unix seconds)
    grace_s        seconds between SIGTERM and SIGKILL (10)
    share          jobs with the same value may run beside each other; without it a job has the machine to itself

It returns as soon as FOLDER is claimed; running it again on the same FOLDER changes nothing. SIGTERM to the process
that FOLDER/pid names ends the job; a file FOLDER/cancel keeps it from starting. It writes

    FOLDER/pid     the supervisor's process, and whether the job waits or runs
    FOLDER/log     the output of the job
    FOLDER/work    the empty folder where the job starts
    FOLDER/exit    how it ended; last of all, and only once nothing of the job is left

Jobs of several sessions take turns by a lock on /tmp/hpc-ml-bench.lock (HPC_ML_BENCH_LOCK names another file).
"""

# Imports would take more of a job's time than the rest of this file, hence no pathlib, contextlib or typing.
# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH110, PTH120, PTH123, PTH208, SIM105

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import itertools
import json
import os
import shlex
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # type checkers assume that it is true
if TYPE_CHECKING:
    from typing import Any

FOLDER_MARK = "HPC_ML_BENCH_FOLDER"  # in the environment of everything that the job starts, and unique on the machine
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOP = {signal.SIGTERM, signal.SIGINT}
WAKE = {signal.SIGCHLD, *STOP}
LOCK_POLL_S = 0.2
LEFTOVERS_GRACE_S = 2.0  # for processes that are still there when the job itself has ended
FULL_DISK_S = 24 * 3600.0  # how long a disk may be full until a job's end is lost
FULL_DISK_POLL_S = 1.0
KILL_S = 15.0  # how long to wait for processes to go after SIGKILL


# --- files -----------------------------------------------------------------------------------------------------------


def read_json(path: str, *, strict: bool = False) -> dict[str, Any] | None:
    """Return a JSON object; None when the file is missing or holds no JSON object.

    With `strict` only a missing file is None, and what cannot be read raises OSError or ValueError.
    """
    try:
        with open(path, "rb") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        if strict and not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise
        return None
    if strict and not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value if isinstance(value, dict) else None


def write_json(path: str, value: dict[str, Any], *, new: bool = False, sync: bool = False) -> bool:
    """Write a whole file or none; `new`: only if there is none yet. Returns whether it was written."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w") as file:
        json.dump(value, file, indent=1)
        file.write("\n")
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if not new:
        os.replace(draft, path)
    else:
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
    if sync:
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    return True


def write_patiently(path: str, value: dict[str, Any], *, sync: bool = False) -> None:
    """Write a whole file, and try it again for FULL_DISK_S seconds while the disk is full or fails."""
    deadline = time.monotonic() + FULL_DISK_S
    while True:
        try:
            write_json(path, value, sync=sync)
            return
        except OSError as error:
            passes = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
            if not passes or time.monotonic() > deadline:
                raise
        time.sleep(FULL_DISK_POLL_S)


def read_settings(folder: str, arguments: list[str]) -> dict[str, str]:
    """Return the settings of the `#JOB` lines at the head of job.sh; arguments override them."""
    with open(f"{folder}/job.sh", encoding="utf-8", errors="surrogateescape") as file:
        head = itertools.takewhile(lambda line: line.startswith("#"), file)
        lines = [line[5:].rstrip("\n") for line in head if line.startswith("#JOB ")]
    return {key: value for key, _, value in (word.partition("=") for word in [*lines, *arguments])}


# --- processes -------------------------------------------------------------------------------------------------------


def stat_fields(pid: int) -> list[str] | None:
    """/proc/PID/stat from its third field on: state, parent, …, [19] start time. None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return None


@functools.lru_cache(maxsize=None)
def machine() -> dict[str, Any]:
    """Return what tells this machine, since it was booted, and this container from every other one."""
    boot = namespace = ""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:  # a sandbox hides them
        pass
    return {"boot": boot, "host": os.uname().nodename, "pid_namespace": namespace}


def identity() -> dict[str, Any]:
    """Return what tells this process from every other one that ever has its pid, here or on another machine."""
    fields = stat_fields(os.getpid())
    return {"pid": os.getpid(), "start": fields[19] if fields else None, **machine()}


def alive(record: dict[str, Any]) -> bool | None:
    """Return whether the process of an `identity` still runs; None when this machine or container cannot see it."""
    here = machine()
    elsewhere = [key for key in ("host", "pid_namespace") if record.get(key) != here[key]]
    if record.get("boot") != here["boot"]:
        return None if "host" in elsewhere else False  # the same machine was booted again
    if elsewhere:
        return None
    fields = stat_fields(int(record["pid"]))
    return fields is not None and fields[0] != "Z" and fields[19] == record.get("start")


def members(folder: str, root: int | None = None) -> list[int]:
    """Return every process that has the folder's mark or descends from one that has, or from `root`, without `root`."""
    mark = b"\0" + os.fsencode(f"{FOLDER_MARK}={folder}") + b"\0"
    found = {root} if root is not None else set()
    parents = {}
    for name in os.listdir("/proc"):
        pid = int(name) if name.isdigit() else 0
        fields = stat_fields(pid) if pid else None
        if fields is None or fields[0] in "ZX":
            continue
        parents[pid] = int(fields[1])
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if mark in b"\0" + file.read():
                    found.add(pid)
        except OSError:  # another user's, or gone
            pass
    grown = 0
    while grown != len(found):
        grown = len(found)
        found.update(pid for pid, parent in parents.items() if parent in found)
    return sorted(found - {root, os.getpid()})


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:  # gone, or a set-uid program: the next call of members() says which
            pass


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl. Where it is missing, only the scan for the folder's mark finds processes."""
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def oom_kills(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int:
    """Return how many processes of our control group the kernel has killed for memory; 0 when it does not count."""
    try:
        with open(f"{proc}/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return 0
    paths = []
    for _, controllers, group in groups:
        if controllers == "":
            paths += [f"{cgroups}{group}/memory.events", f"{cgroups}/memory.events"]
        elif "memory" in controllers.split(","):
            paths += [f"{cgroups}/memory{group}/memory.oom_control", f"{cgroups}/memory/memory.oom_control"]
    for path in paths:  # a container that sees only its own group has the second of each pair
        try:
            with open(path) as file:
                counts = dict(line.split() for line in file)
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


# --- the lock --------------------------------------------------------------------------------------------------------


class Lock:
    """Lets one job at a time run on a machine, or several with the same `share`. It ends when its holder dies."""

    def __init__(self, path: str, share: str, holder: dict[str, Any]) -> None:
        self.path = path
        self.share = share
        self.holder = holder
        self.fd, self.writable = self._open()

    def _open(self) -> tuple[int, bool]:
        """Open the file, but never through a link.

        O_CREAT is used only on a missing file: in a sticky folder the kernel refuses it on another one, even to root.
        """
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        for access in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
            try:
                fd = os.open(self.path, flags | access, 0o666)
            except (FileNotFoundError, FileExistsError):
                continue
            except PermissionError:
                if access == os.O_RDONLY or access & os.O_CREAT:
                    raise
                continue
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(errno.EINVAL, "it is not a plain file", self.path)
            if access & os.O_CREAT:
                os.fchmod(fd, 0o666)  # jobs of other users need the same lock
            return fd, access != os.O_RDONLY
        folder = os.path.dirname(self.path) or "."
        if not os.path.exists(folder):
            raise OSError(errno.ENOENT, f"there is no folder {folder}: mkdir -p {shlex.quote(folder)}", self.path)
        raise OSError(errno.EAGAIN, "it comes and goes", self.path)

    def take(self) -> bool:
        """Take the lock without waiting. Returns whether it is ours."""
        if not self._same_file():  # a cleaner of /tmp has removed it
            os.close(self.fd)
            self.fd, self.writable = self._open()
        if not self._flock(fcntl.LOCK_EX):
            return bool(self.share) and self._join()
        if not self.writable:
            return True
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, json.dumps({**self.holder, "share": self.share}).encode() + b"\n", 0)
        # between our exclusive lock and the shared one another session may get in, so check again
        return self._join() if self.share else True

    def held_by(self) -> str:
        holder = self._read()
        return f", held by {holder['name']} (pid {holder['pid']}, {holder['folder']})" if "pid" in holder else ""

    def release(self) -> None:
        os.close(self.fd)

    def _join(self) -> bool:
        if not self._flock(fcntl.LOCK_SH):
            return False
        if self._read().get("share") == self.share:
            return True
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return False

    def _flock(self, kind: int) -> bool:
        try:
            fcntl.flock(self.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _read(self) -> dict[str, Any]:
        try:
            value = json.loads(os.pread(self.fd, 65536, 0).decode())
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _same_file(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self.fd), os.lstat(self.path))
        except OSError:
            return False


# --- the job ---------------------------------------------------------------------------------------------------------


class Supervisor:
    """Watches one job. Signals stay blocked and are read one by one, so that none interrupts it."""

    def __init__(self, folder: str, settings: dict[str, str]) -> None:
        now = time.time()
        self.folder = folder
        self.settings = settings
        self.record: dict[str, Any] = {**identity(), "folder": folder, "name": settings.get("name", folder)}
        self.record.update(state="queued", reason="", submitted=now, started=None, session=None)
        self.not_after = float(settings.get("not_after", "inf"))
        if "start_limit_s" in settings:
            self.not_after = min(self.not_after, now + float(settings["start_limit_s"]))
        self.time_limit_s = float(settings.get("time_limit_s", "inf"))
        self.grace_s = float(settings.get("grace_s", "10"))
        self.lock: Lock | None = None
        self.job: int | None = None  # its pid, which is also its session
        self.ended: int | None = None  # its status as waitpid returns it
        self.ended_s: float | None = None

    def claim(self) -> bool:
        """Write the pid file, whole or not at all, and only once. Returns False if there is a supervisor already."""
        try:
            return write_json(f"{self.folder}/pid", self.record, new=True)
        except PermissionError as error:  # the error of a file system without hard links
            raise OSError(f"{error}: a job's folder needs a file system with hard links; choose another one") from None

    def run(self) -> None:
        """See the claimed job to its exit file, whatever happens between."""
        try:
            state, reason = self.wait_for_turn()
            if not state:
                kills = oom_kills()
                self.start()
                state, reason = self.watch()
                if state != "cancelled" and oom_kills() > kills:
                    state, reason = "oom", "the kernel killed one of its processes for memory"
        except Exception as error:
            state, reason = "not_startable" if self.job is None else "supervisor", f"{error}"
            if not isinstance(error, OSError):
                import traceback  # slow to import, and needed only for our own mistakes

                reason = traceback.format_exc()
        left = self.end(LEFTOVERS_GRACE_S)
        if left:
            reason = f"{reason}; not even SIGKILL ended its processes {left}".lstrip("; ")
        if self.lock is not None:
            self.lock.release()  # before the exit file appears, after which the next job may be started
        self.write_exit(state, reason)

    def wait_for_turn(self) -> tuple[str, str]:
        """Wait until the lock is ours. Returns state and reason of a job that must not start, else empty strings."""
        path = os.environ.get("HPC_ML_BENCH_LOCK") or "/tmp/hpc-ml-bench.lock"
        holder = {"name": self.record["name"], "pid": self.record["pid"], "folder": self.folder}
        try:
            self.lock = Lock(path, self.settings.get("share", ""), holder)
        except OSError as error:
            return (
                "not_startable",
                f"its lock {path}: {error.strerror}; or name another lock in HPC_ML_BENCH_LOCK",
            )
        reason = ""
        while True:
            if os.path.exists(f"{self.folder}/cancel"):
                return "cancelled", "before it started"
            ours = self.lock.take()
            if not ours:
                reason = f"waits for {path}{self.lock.held_by()}"
            if time.time() > self.not_after:
                return "not_after", reason or "its start limit had passed when its turn came"
            if ours:
                return "", ""
            self.publish(state="queued", reason=reason)
            if signal.sigtimedwait(STOP, LOCK_POLL_S):
                return "cancelled", "before it started"

    def publish(self, **changes: object) -> None:
        if any(self.record.get(key) != value for key, value in changes.items()):
            self.record.update(changes)
            write_patiently(f"{self.folder}/pid", self.record)

    def start(self) -> None:
        """Start the job. It waits until the pid file says that it runs; if we die before that, it never starts."""
        work = f"{self.folder}/work"
        os.makedirs(work, exist_ok=True)
        if os.listdir(work):
            raise OSError(f"a job starts in an empty folder, and {work} is not empty")
        log = os.open(f"{self.folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        ready, go = os.pipe()
        parent = os.getpid()
        job = os.fork()
        if job == 0:
            os.close(go)
            self.become_job(parent, ready, log)
        self.job = job
        self.publish(state="running", reason="", session=job, started=time.time())
        os.write(go, b"!")
        for fd in (ready, go, log):
            os.close(fd)

    def become_job(self, parent: int, ready: int, log: int) -> None:
        """Become the job's shell, in the child process. Never returns."""
        try:
            os.setsid()
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # not SIGKILL, so that a launcher can end its ranks
            if os.getppid() != parent or os.read(ready, 1) != b"!":
                os._exit(125)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(f"{self.folder}/work")
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and the job would inherit that
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            marks = {"HPC_ML_BENCH_JOB": str(self.record["name"]), FOLDER_MARK: self.folder}
            os.execve("/bin/sh", ["sh", f"{self.folder}/job.sh"], {**os.environ, **marks})
        except BaseException as error:
            os.write(log, f"the job cannot be started: {error}\n".encode())
        finally:
            os._exit(127)

    def watch(self) -> tuple[str, str]:
        """Wait until the job ends, or must be ended. Returns state and reason; empty strings after its own end."""
        deadline = time.monotonic() + self.time_limit_s
        while True:
            left = deadline - time.monotonic()
            got = signal.sigtimedwait(WAKE, max(0.0, min(left, 3600.0)))
            if not self.reap() or self.ended is not None:
                return "", ""
            if got is not None and got.si_signo in STOP:
                self.end(self.grace_s)
                return "cancelled", "while it ran"
            if time.monotonic() >= deadline:
                self.end(self.grace_s)
                return "time_limit", f"it was ended after its time limit of {self.time_limit_s:g} s"

    def reap(self) -> bool:
        """Collect every child that has ended. Returns whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.job:
                self.ended, self.ended_s = status, time.time()

    def end(self, grace_s: float) -> list[int]:
        """Send SIGTERM, then SIGKILL to every process that the job started. Returns those that survive."""
        for number, limit_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
            deadline = time.monotonic() + limit_s
            signalled: list[int] = []
            while True:
                self.reap()
                left = members(self.folder, os.getpid())
                if not left:
                    return []
                targets = left
                if number == signal.SIGTERM:  # once to each process
                    targets = [pid for pid in left if pid not in signalled]
                send(targets, number)
                signalled += targets
                if time.monotonic() >= deadline:
                    break
                signal.sigtimedwait({signal.SIGCHLD}, 0.05)
        return left

    def write_exit(self, state: str, reason: str) -> None:
        """Write the exit file, last of all. Without one, the supervisor was killed."""
        code = None
        number = None
        if self.ended is not None:
            number = os.WTERMSIG(self.ended) if os.WIFSIGNALED(self.ended) else None
            code = os.WEXITSTATUS(self.ended) if number is None else 128 + number
        record: dict[str, Any] = {"exit_code": code, "signal": number, "state": state or None, "reason": reason}
        record.update({key: self.record[key] for key in ("name", "host", "submitted", "started")})
        record["ended"] = self.ended_s if self.ended_s is not None else time.time()
        write_patiently(f"{self.folder}/exit", record, sync=True)


# --- becoming a supervisor -------------------------------------------------------------------------------------------


def supervise(folder: str, settings: dict[str, str], answer: int) -> None:
    """Claim the folder, report that, and see the job to its end; in the detached process."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {*WAKE, signal.SIGHUP})
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # a process whose parent dies becomes our child and not init's
        supervisor = Supervisor(folder, settings)
        ours = supervisor.claim()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and int(name) != answer:
                try:
                    os.close(int(name))
                except OSError:  # the descriptor that listed them
                    pass
        os.chdir("/")
    except BaseException as error:
        os.write(answer, f"{error}".encode())
        os._exit(1)
    try:
        os.write(answer, b"ok")
    except OSError:  # the submitter was killed; the next one finds the claim
        pass
    os.close(answer)
    if ours:
        supervisor.run()
    os._exit(0)


def launch(folder: str, arguments: list[str]) -> str:
    """Start a detached supervisor. Returns "" once it has claimed the folder, or why it could not."""
    try:
        settings = read_settings(folder, arguments)
    except (OSError, ValueError) as error:
        return f"{error}"
    receive, answer = os.pipe()
    if os.fork() == 0:
        os.close(receive)
        os.setsid()
        if os.fork():
            os._exit(0)
        supervise(folder, settings, answer)
    os.close(answer)
    os.wait()
    with open(receive, "rb") as file:
        report = file.read().decode()
    if report == "ok":
        return ""
    return report or "it died before it could claim the folder"


def main(argv: list[str]) -> int:
    """Run the command line. One line on standard error says why there is no supervisor."""
    if len(argv) < 2:
        print((__doc__ or "").split("\n\n")[1], file=sys.stderr)
        return 2
    why = launch(os.path.abspath(argv[1]), argv[2:])
    if why:
        print(f"supervisor.py: {why}", file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
