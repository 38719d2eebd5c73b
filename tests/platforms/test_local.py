"""Jobs under a supervisor, with real processes: how they end, that nothing outlives them, and who may start them when.

What the scheduler ssh does as well is tried with both; its other machine is this one, reached by the transport local.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import MachineError, State, Submitted
from platforms.schedulers import Scheduler, backend_of, ssh, supervisor
from platforms.schedulers.local import LocalScheduler
from tests.platforms.supervised import (
    SPEC,
    at,
    gone,
    held,
    job,
    pids,
    python,
    ran,
    shell,
    start,
    status_of,
    until,
    wait,
)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lock"
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(path))
    return path


@pytest.fixture
def scheduler() -> LocalScheduler:
    return LocalScheduler(Platform(name="local"))


NIGHTLY = pytest.mark.nightly("platforms/schedulers", "platforms/transports")
BOTH = pytest.mark.parametrize("kind", ["local", "ssh"], indirect=True)
"""ssh is tried in every run only where it has code of its own; it shares the supervisor with local."""


@pytest.fixture(params=["local", pytest.param("ssh", marks=NIGHTLY)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def either(kind: str, tmp_path: Path) -> Scheduler:
    """A scheduler whose jobs lie in tmp_path/jobs."""
    return at(kind, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "jobs" / SPEC.name
    folder.mkdir(parents=True)
    yield folder
    supervisor.send(supervisor.members(str(folder)), signal.SIGKILL)  # a test that failed leaves nothing behind either


# --- how a job ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", ["{", '{"state": null, "exit_code": ""}'])
def test_what_cannot_be_read_of_a_job_concerns_that_job_alone(either: Scheduler, tmp_path: Path, torn: str) -> None:
    """It is unknown, and not lost: its file may be whole at the next poll."""
    jobs = [Submitted(str(tmp_path / "jobs" / name), name, 0.0) for name in ("torn", "gone")]
    (tmp_path / "jobs/torn").mkdir(parents=True)
    (tmp_path / "jobs/torn/exit").write_text(torn)
    statuses = either.status(jobs)
    assert [statuses[job.job_id].state for job in jobs] == [State.UNKNOWN, State.LOST]
    assert statuses[jobs[0].job_id].away
    assert (tmp_path / "jobs/torn/exit").read_text() == torn


@BOTH
@pytest.mark.parametrize(
    ("code", "state"),
    [
        (0, State.SUCCEEDED),
        (3, State.EXITED),  # what our own codes mean, the runner knows
        (126, State.NOT_STARTABLE),
    ],
)
def test_an_exit_code_becomes_a_state(either: Scheduler, folder: Path, code: int, state: State) -> None:
    before = time.time()

    status = ran(either, shell(f"exit {code}"), folder)

    assert (status.state, status.exit_code, status.signal) == (state, code, None)
    assert status.nodes == (os.uname().nodename,)
    assert status.submitted_s is not None
    assert status.started_s is not None
    assert status.ended_s is not None
    assert before <= status.submitted_s <= status.started_s <= status.ended_s <= time.time()


def test_a_command_that_does_not_exist(either: Scheduler, folder: Path) -> None:
    status = ran(either, replace(SPEC, arguments=("/no/such/program",)), folder)

    assert (status.state, status.exit_code) == (State.NOT_STARTABLE, 127)
    assert b"/no/such/program" in (folder / "log").read_bytes()


def test_a_signal_becomes_a_state(either: Scheduler, folder: Path) -> None:
    status = ran(either, shell("kill -SEGV $$"), folder)
    nested = ran(either, shell("sh -c 'kill -ABRT $$'; exit $?"), folder.with_name("two"))

    assert (status.state, status.exit_code, status.signal) == (State.SIGNALLED, 139, signal.SIGSEGV)
    assert (nested.state, nested.exit_code, nested.signal) == (State.SIGNALLED, 134, signal.SIGABRT)


@pytest.fixture
def once_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's time limit counts from when it has made a file `up`, however long it takes to come so far."""
    counts = "        deadline = time.monotonic() + self.time_limit_s\n"
    waits = "        while self.reap() and self.ended is None and not os.path.exists(f'{self.folder}/up'):\n"
    head, found, tail = Path(supervisor.__file__).read_text().partition(counts)
    assert found
    (tmp_path / "supervisor.py").write_text(f"{head}{waits}            time.sleep(0.01)\n{counts}{tail}")
    monkeypatch.setattr(supervisor, "__file__", str(tmp_path / "supervisor.py"))
    monkeypatch.setattr(ssh, "program", ssh.program.__wrapped__)  # not the one that is made already


@pytest.mark.usefixtures("once_up")
def test_a_job_ends_at_its_time_limit(either: Scheduler, folder: Path) -> None:
    status = ran(either, shell("echo $$ > ../pids; touch ../up; exec sleep 100", time_limit_s=0.3), folder)

    assert status.state is State.TIME_LIMIT
    assert "0.3 s" in status.reason
    assert status.run_s is not None
    assert status.run_s >= 0.3
    assert gone(*pids(folder / "pids", 1))


@pytest.mark.usefixtures("once_up")
def test_the_time_limit_kills_a_job_that_ignores_sigterm(either: Scheduler, folder: Path) -> None:
    forever = "(trap '' TERM; while :; do sleep 0.05; done)"
    deaf = shell(f"trap '' TERM; {forever} & echo $! $$ | tr ' ' '\\n' > ../pids; touch ../up; wait")

    status = ran(either, replace(deaf, time_limit_s=0.3), folder, grace_s=0.3)

    assert (status.state, status.signal) == (State.TIME_LIMIT, signal.SIGKILL)
    assert all(gone(pid) for pid in pids(folder / "pids", 2))


@pytest.mark.usefixtures("once_up")
def test_a_job_has_time_to_clean_up_after_sigterm(scheduler: LocalScheduler, folder: Path) -> None:
    clean = "trap 'sleep 0.2; echo tidied; exit 5' TERM"
    tidy = shell(f"{clean}; echo up; touch ../up; while :; do sleep 0.05; done", time_limit_s=0.3)

    status = ran(scheduler, tidy, folder, grace_s=60)

    assert (status.state, status.exit_code) == (State.TIME_LIMIT, 5)
    assert (folder / "log").read_text().endswith("tidied\n")


DAEMON = """
import os, sys, time
def record():
    with open("../pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:                       # a daemon by the book
        record()
        time.sleep(100)
    if os.fork() == 0:                       # one that has also shed its environment
        deaf = "echo $$ >> ../pids; trap '' TERM; while :; do sleep 0.1; done"
        os.execve("/bin/sh", ["sh", "-c", deaf], {"PATH": os.environ["PATH"]})
    os._exit(0)
while not (os.path.exists("../pids") and open("../pids").read().count("\\n") == 2):
    time.sleep(0.01)
"""


@BOTH
def test_no_process_outlives_its_job(either: Scheduler, folder: Path) -> None:
    status = ran(either, python(DAEMON + "sys.exit(3)"), folder)

    assert status.exit_code == 3
    assert all(gone(pid) for pid in pids(folder / "pids", 2))
    assert supervisor.members(str(folder)) == []


@BOTH
def test_a_job_whose_supervisor_was_killed_is_lost(either: Scheduler, folder: Path) -> None:
    job_id = start(either, python(DAEMON + "record(); time.sleep(100)"), folder)
    found = pids(folder / "pids", 3)
    record = supervisor.read_json(f"{folder}/pid")
    assert record is not None
    job = record["session"]
    others = [pid for pid in found if pid != job]
    assert len(others) == 2

    os.kill(record["pid"], signal.SIGKILL)
    until(lambda: gone(job), "the job itself hears of its supervisor's death")
    until(lambda: gone(record["pid"]))
    status = status_of(either, job_id)

    assert status.state is State.LOST
    assert f"pid {record['pid']}" in status.reason
    marked = [pid for pid in others if not gone(pid)]
    assert len(marked) <= 1  # the one without an environment, which nothing but its supervisor can know
    for pid in marked:
        os.kill(pid, signal.SIGKILL)
    assert status_of(at("local", folder), job_id) == status


def test_a_job_whose_supervisor_was_killed_is_not_started_again(either: Scheduler, folder: Path) -> None:
    job_id = start(either, shell("echo x >> ../count; exec sleep 100"), folder)
    until(lambda: (folder / "count").exists() and (folder / "count").read_text())
    os.kill(json.loads((folder / "pid").read_text())["pid"], signal.SIGKILL)
    assert wait(either, job_id).state is State.LOST

    assert start(either, SPEC, folder) == job_id
    assert status_of(either, job_id).state is State.LOST
    assert (folder / "count").read_text() == "x\n"


def test_the_end_of_a_job_is_told(scheduler: LocalScheduler, folder: Path) -> None:
    jobs = [job(start(scheduler, shell("sleep 0.2"), path)) for path in (folder, folder.with_name("two"))]
    ends = [threading.Event() for _ in jobs]
    for one, end in zip(jobs, ends, strict=True):
        scheduler.watch(one, end.set)

    assert all(end.wait(20) for end in ends)
    assert [status_of(scheduler, one.job_id).state for one in jobs] == [State.SUCCEEDED, State.SUCCEEDED]
    ends[0].clear()
    try:
        scheduler.watch(jobs[0], ends[0].set)
    except ProcessLookupError:  # unless its parent has not taken notice of its end yet
        return
    assert ends[0].wait(20)


def test_a_recycled_pid_is_not_the_supervisor(either: Scheduler, folder: Path) -> None:
    job_id = start(either, SPEC, folder)
    wait(either, job_id)
    (folder / "exit").unlink()
    path = folder / "pid"
    record = json.loads(path.read_text())

    path.write_text(json.dumps({**record, "pid": os.getpid()}))
    assert status_of(either, job_id).state is State.LOST
    (folder / "exit").unlink()
    path.write_text(json.dumps({**record, **supervisor.identity(), "boot": "another"}))
    assert status_of(either, job_id).state is State.LOST
    (folder / "exit").unlink()
    path.write_text(json.dumps({**record, "host": "login7"}))
    away = status_of(either, job_id)
    assert (away.state, "login7" in away.reason) == (State.UNKNOWN, True)
    assert "login7" in either.cancel([job(job_id)])[job_id]


def test_a_folder_without_a_job_is_lost(either: Scheduler, tmp_path: Path) -> None:
    job_id = str(tmp_path / "jobs" / "nothing")

    assert status_of(either, job_id).state is State.LOST
    assert either.read(job(job_id), 0) == b""
    assert either.cancel([job(job_id)]) == {}
    either.clean(job(job_id))


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with 64 MiB of memory, where the kernel and our rights let us make one."""
    parent = next(
        (p for p in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None
    )
    limit = "memory.limit_in_bytes" if parent and parent.name == "memory" else "memory.max"
    group = (parent or Path("/nowhere")) / f"hpc-ml-bench-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(64 << 20))
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group for memory can be made here: {error}")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_job_that_the_kernel_kills_for_memory_is_out_of_memory(
    scheduler: LocalScheduler, folder: Path, small_group: Path
) -> None:
    spec = python("blocks = [bytearray(1 << 20) for _ in range(200)]")
    text = scheduler.render(spec)
    (folder / "job.sh").write_text(text)
    enter = 'echo $$ > "$1"; shift; exec "$@"'
    command = [sys.executable, supervisor.__file__, str(folder)]

    subprocess.run(["sh", "-c", enter, "sh", str(small_group / "cgroup.procs"), *command], check=True)

    status = wait(scheduler, str(folder))
    assert (status.state, status.signal) == (State.OUT_OF_MEMORY, signal.SIGKILL)


# --- cancelling ------------------------------------------------------------------------------------------------------


@BOTH
def test_a_cancelled_job_is_gone(either: Scheduler, folder: Path) -> None:
    job_id = start(either, python(DAEMON + "record(); time.sleep(100)"), folder, grace_s=0.2)
    found = pids(folder / "pids", 3)
    assert status_of(either, job_id).state is State.RUNNING

    assert either.cancel([job(job_id)]) == {}

    assert all(gone(pid) for pid in found)
    status = status_of(either, job_id)
    assert (status.state, status.signal) == (State.CANCELLED, signal.SIGTERM)
    assert either.cancel([job(job_id)]) == {}
    assert status_of(either, job_id) == status


def test_a_waiting_job_can_be_cancelled(either: Scheduler, folder: Path, lock: Path) -> None:
    with held(lock):
        job_id = start(either, SPEC, folder)
        assert either.cancel([job(job_id)]) == {}

    status = status_of(either, job_id)
    assert (status.state, status.started_s) == (State.CANCELLED, None)
    assert not (folder / "log").exists()


def test_a_cancel_before_the_supervisor_runs_prevents_the_start(either: Scheduler, folder: Path) -> None:
    assert either.cancel([job(folder)]) == {}

    assert ran(either, SPEC, folder).state is State.CANCELLED
    assert not (folder / "log").exists()


# --- when a job may start --------------------------------------------------------------------------------------------


@BOTH
def test_two_sessions_take_turns(kind: str, tmp_path: Path, lock: Path) -> None:
    either, other = at(kind, tmp_path / "run1"), at(kind, tmp_path / "run2")
    hold = shell("while [ ! -e ../go ]; do sleep 0.05; done")
    one = start(either, hold, tmp_path / "run1" / "jobs" / "the-first")
    until(lambda: status_of(either, one).state is State.RUNNING)
    two = start(other, SPEC, tmp_path / "run2" / "jobs" / "a")
    until(lambda: status_of(either, two).reason)

    waiting = either.status([job(one), job(two)])

    assert waiting[one].state is State.RUNNING
    assert waiting[two].state is State.QUEUED
    assert f"waits for {lock}, held by the-first (pid " in waiting[two].reason
    Path(one, "go").touch()
    first, second = wait(either, one), wait(either, two)
    assert first.ended_s is not None
    assert second.started_s is not None
    assert first.ended_s <= second.started_s
    assert second.state is State.SUCCEEDED


def test_one_session_may_run_several(kind: str, tmp_path: Path) -> None:
    several, alone = at(kind, tmp_path / "run1", max_running=2), at(kind, tmp_path / "run2")
    meet = "touch ../../$0; while [ ! -e ../../$1 ] || [ ! -e ../../go ]; do sleep 0.02; done"
    specs = [replace(SPEC, arguments=("sh", "-c", meet, *names)) for names in (("a", "b"), ("b", "a"))]

    one = start(several, specs[0], tmp_path / "run1" / "jobs" / "one")
    two = start(several, specs[1], tmp_path / "run1" / "jobs" / "two")
    until(lambda: all(status_of(several, each).state is State.RUNNING for each in (one, two)))
    other = start(alone, SPEC, tmp_path / "run2" / "jobs" / "one")
    until(lambda: "waits for" in status_of(alone, other).reason)
    (tmp_path / "run1" / "jobs" / "go").touch()

    together = [wait(several, one), wait(several, two)]
    assert [status.state for status in together] == [State.SUCCEEDED, State.SUCCEEDED]
    last = wait(alone, other)
    assert last.started_s is not None
    assert last.started_s >= max(status.ended_s or 0 for status in together)


def test_a_job_does_not_start_after_its_start_limit(either: Scheduler, folder: Path, lock: Path) -> None:
    with held(lock):
        status = ran(either, replace(SPEC, start_limit_s=0.3), folder)

    assert (status.state, status.started_s) == (State.START_DEADLINE, None)
    assert f"waits for {lock}" in status.reason
    assert not (folder / "log").exists()


def test_a_job_does_not_start_after_not_after(either: Scheduler, folder: Path) -> None:
    assert ran(either, SPEC, folder, not_after=time.time() - 1).state is State.START_DEADLINE
    assert not (folder / "log").exists()


def test_the_lock_is_opened_with_care(either: Scheduler, folder: Path, lock: Path) -> None:
    target = lock.with_name("target")
    target.write_text("precious")
    lock.symlink_to(target)
    through_link = ran(either, SPEC, folder)
    lock.unlink()
    os.mkfifo(lock)
    pipe = ran(either, SPEC, folder.with_name("two"))

    assert through_link.state is pipe.state is State.NOT_STARTABLE
    assert f"lock {lock}: " in through_link.reason
    assert "HPC_ML_BENCH_LOCK" in pipe.reason
    assert target.read_text() == "precious"


def test_a_lock_in_a_missing_folder_is_reported(
    either: Scheduler, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = folder.with_name("no such")
    monkeypatch.setenv("HPC_ML_BENCH_LOCK", str(nowhere / "lock"))
    refused = ran(either, SPEC, folder)

    assert refused.state is State.NOT_STARTABLE
    assert f"there is no folder {nowhere}: mkdir -p '{nowhere}'" in refused.reason


def test_a_lock_that_the_platform_names(either: Scheduler, folder: Path, lock: Path) -> None:
    other = lock.with_name("another")
    with held(other):
        job_id = start(either, replace(SPEC, env={"HPC_ML_BENCH_LOCK": str(other)}), folder)
        until(lambda: f"waits for {other}" in status_of(either, job_id).reason)

    assert wait(either, job_id).state is State.SUCCEEDED


def test_a_lock_of_another_user_is_only_read() -> None:
    code = (
        "import os, sys; from platforms.schedulers.supervisor import Lock\n"
        "os.getuid() or os.setuid(65534)\n"  # root may write anything
        "one, two = (Lock(sys.argv[1], '', {'name': 'x'}) for _ in range(2))\n"
        "print(one.writable, one.take(), two.take())"
    )
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        lock = Path(name, "lock")
        lock.touch()
        lock.chmod(0o444)

        done = subprocess.run([sys.executable, "-c", code, lock], capture_output=True, text=True, cwd=ROOT)

    assert done.stdout.split() == ["False", "True", "False"], done.stderr


# --- one folder, one job ---------------------------------------------------------------------------------------------

SUBMIT = """
import sys
from pathlib import Path
from platforms import atomic_file
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout
from platforms.schedulers import connect
folder, kind = Path(sys.argv[1]), sys.argv[2]
work_dir = None if kind == "local" else str(folder.parents[1])
scheduler = connect(Platform(name="local").model_copy(update={"scheduler": kind, "work_dir": work_dir}))
command = ("sh", "-c", "echo x >> ../count; sleep 0.2")
spec = JobSpec(folder.name, "t", "local", Layout(1, 1, "cpu"), command, time_limit_s=60)
text = scheduler.render(spec)
folder.mkdir(parents=True, exist_ok=True)
atomic_file.write_text(folder / scheduler.text_name, text)
print("ready", flush=True)
sys.stdin.readline()
print(scheduler.submit(spec, text, folder), flush=True)
"""


def submitter(folder: Path, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUBMIT, str(folder), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@BOTH
def test_two_submissions_at_once_are_one_job(kind: str, either: Scheduler, folder: Path) -> None:
    processes = [submitter(folder, kind) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = {process.communicate()[0] for process in processes}

    assert answers == {f"{folder}\n"}
    assert wait(either, str(folder)).state is State.SUCCEEDED
    again = replace(SPEC, name=folder.name)
    assert either.submit(again, either.render(again), folder) == str(folder)
    assert (folder / "count").read_text() == "x\n"
    assert "echo x" in (folder / "job.sh").read_text()  # the text that ran, not that of the last submission


def test_a_job_outlives_its_killed_submitter(kind: str, either: Scheduler, tmp_path: Path) -> None:
    for number, delay_s in enumerate((0.0, 0.03, 0.1)):
        folder = tmp_path / "jobs" / str(number)
        folder.mkdir(parents=True)
        process = submitter(folder, kind)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(delay_s)
        process.kill()
        process.communicate()

        status = ran(either, shell("echo x >> ../count; sleep 0.2"), folder)

        assert status.state is State.SUCCEEDED
        assert (folder / "count").read_text() == "x\n"


def test_a_refused_submission_says_why(scheduler: LocalScheduler, folder: Path) -> None:
    text = scheduler.render(SPEC).replace("time_limit_s=900", "time_limit_s=soon")
    (folder / "job.sh").write_text(text)
    with pytest.raises(MachineError, match="soon") as error:
        scheduler.submit(SPEC, text, folder)

    assert error.value.status.state is State.SUBMIT_REFUSED
    assert sorted(path.name for path in folder.iterdir()) == ["job.sh"]


# --- what a job finds ------------------------------------------------------------------------------------------------


@BOTH
def test_the_log_is_read_to_the_byte(either: Scheduler, folder: Path) -> None:
    loud = "import os\nfor n in range(3000): os.write(1 + n % 2, bytes(range(256)) * 2)\nos.write(2, b'no newline')"
    job_id = start(either, python(loud), folder)
    log = b""
    while status_of(either, job_id).state.live:
        log += either.read(job(job_id), len(log))
    while chunk := either.read(job(job_id), len(log)):
        log += chunk

    assert log == bytes(range(256)) * 6000 + b"no newline"


@pytest.mark.parametrize("name", ['it\'s "two"\nwords täst-Ω $HOME `id` ;&|', "-n", "#JOB x=1"])
def test_jobs_run_in_folders_with_strange_names(kind: str, tmp_path: Path, name: str) -> None:
    scheduler, folder = at(kind, tmp_path / name), tmp_path / name / "jobs" / name

    status = ran(scheduler, replace(shell("pwd; sleep 0.05 &"), test=name), folder)

    assert status.state is State.SUCCEEDED
    assert (folder / "log").read_text() == f"{folder}/work\n"
    assert scheduler.hints(job(folder))[0].endswith("/log")
    shown = subprocess.run(["sh", "-c", scheduler.hints(job(folder))[0].replace("less", "cat")], capture_output=True)
    assert shown.stdout == (folder / "log").read_bytes()


def test_environment(either: Scheduler, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("SLURM_PROCID", "3")
    nasty = {"QUOTES": 'it\'s "so"', "DOLLAR": "$HOME `id` $(id) \\", "LINES": "a\n#JOB time_limit_s=0\nb"}
    nasty |= {"EMPTY": "", "U": "Ω"}
    ours = {"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "1", "HPC_ML_BENCH_JOB": SPEC.name}
    removed = ("RANK", "SLURM_PROCID")
    inherited = ("HOME", "LC_ALL")  # a command over a connection has an LC_ALL of its own, and no job
    names = [*nasty, *ours, *removed, *inherited]
    show = f"import json, os; print(json.dumps({{name: os.environ.get(name) for name in {names!r}}}))"

    status = ran(either, python(show, env=nasty, threads_per_rank=3), folder)

    assert status.state is State.SUCCEEDED
    expected = {**nasty, **ours, **dict.fromkeys(removed), **{name: os.environ.get(name) for name in inherited}}
    assert json.loads((folder / "log").read_text()) == expected


def test_a_job_starts_in_an_empty_folder_with_default_signals(either: Scheduler, folder: Path) -> None:
    look = (
        "import os, signal, sys\n"
        "print(os.listdir('.'), os.getcwd(), os.readlink('/proc/self/fd/0'), sorted(os.listdir('/proc/self/fd')))\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "print(os.getsid(0) == os.getpid())\n"
        "print([line for line in open('/proc/self/status') if line.startswith('SigIgn')])"
    )
    ran(either, python(look), folder)

    fresh = ran(either, python(look), folder.with_name("two"))

    assert fresh.state is State.SUCCEEDED
    first, second, third, fourth = (folder.with_name("two") / "log").read_text().splitlines()
    assert first == f"[] {folder.with_name('two')}/work /dev/null ['0', '1', '2', '3']"  # 3 lists them
    assert (second, third) == ("True set()", "True")
    ignored = int(fourth.rpartition("\\t")[2].partition("\\n")[0], 16)
    status = Path("/proc/self/status").read_text()
    inherited = int(status.partition("SigIgn:")[2].split()[0], 16)  # nohup and a shell's background ignore some, too
    assert not ignored & ~inherited & 0x7FFFFFFF  # above are libc's own


def test_a_job_refuses_a_work_folder_that_is_not_empty(either: Scheduler, folder: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "old").touch()

    status = ran(either, SPEC, folder)

    assert (status.state, "not empty" in status.reason) == (State.NOT_STARTABLE, True)


def test_clean_leaves_the_evidence(scheduler: LocalScheduler, folder: Path) -> None:
    ran(scheduler, shell("echo hello"), folder)
    ran(scheduler, shell("echo 1 > steps"), folder.with_name("two"))

    for path in (folder, folder.with_name("two")):
        scheduler.clean(job(path))

    assert sorted(path.name for path in folder.iterdir()) == ["exit", "job.sh", "log", "pid"]
    assert (folder.with_name("two") / "work" / "steps").exists()


def test_hints(either: Scheduler, folder: Path) -> None:
    job_id = start(either, shell("sleep 100"), folder)
    until(lambda: status_of(either, job_id).state is State.RUNNING)
    tail, kill = either.hints(job(job_id))

    assert tail == f"tail -n 50 -f {folder}/log"
    subprocess.run(["sh", "-c", kill], check=True)
    assert wait(either, job_id).state is State.CANCELLED
    assert either.hints(job(job_id)) == (f"less {folder}/log", f"cat {folder}/job.sh", f"rm -r {folder}")


@BOTH
def test_a_secret_reaches_the_job_and_no_file(either: Scheduler, folder: Path) -> None:
    spec = shell('echo "it has ${#HF_TOKEN} letters"', env={"HF_TOKEN": "hf_verysecret", "PLAIN": "shown"})
    assert ran(either, spec, folder).state is State.SUCCEEDED
    assert (folder / "log").read_text() == "it has 13 letters\n"
    assert "export PLAIN=shown" in (folder / "job.sh").read_text()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 4
    assert not [path for path in files if b"hf_verysecret" in path.read_bytes()]


# --- its node --------------------------------------------------------------------------------------------------------


def test_a_machine_takes_jobs_that_ask_for_it_by_its_name(kind: str, either: Scheduler, folder: Path) -> None:
    own = os.uname().nodename
    status = ran(either, replace(SPEC, nodes=(own,)), folder)
    assert (status.state, status.nodes) == (State.SUCCEEDED, (own,))
    place = Platform(name="local").model_copy(update={"scheduler": kind})
    assert [(node.name, node.state) for node in backend_of(place).nodes(place)] == [(own, "idle")]
    assert backend_of(place).nodes_of_job(place, "any") == (own,)
    assert backend_of(place).drain_command(own, "slow") is None
