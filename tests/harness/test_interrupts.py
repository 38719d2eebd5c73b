"""What Ctrl-C does, once and twice, what SIGTERM does, and what a terminal that is closed."""

from __future__ import annotations

import re
import signal

import pytest

from platforms.rundir import session_history
from tests.harness.night import KILL, Night
from tests.harness.terminal import Terminal

pytestmark = pytest.mark.slow


def test_killed_while_it_cancelled(night: Night) -> None:
    """What it ended begins again, as an attempt that nobody has begun to end."""
    program = f"{KILL}from platforms.runner import messages\nfrom platforms.runner.finalizer import Finalizer\n"
    program += "finish = Finalizer.finish\n\ndef last(self, job, *words):\n    finish(self, job, *words)\n"
    program += "    if job.status.reason == messages.ENDED_BY_US:\n        kill()\n\nFinalizer.finish = last\n"
    session = night.imports(program, "-m", "cluster", "--run-id=17")
    session.until(night.is_under_way)
    session.send(signal.SIGINT)
    assert session.ends() == -signal.SIGKILL
    night.open_gate()
    night.project.pytest("--resume").assert_outcomes(passed=3)
    last = session_history.read_sessions(night.path / "runs/17")[-1]
    attempts = [attempt for test, attempt in last.attempts.items() if test.startswith("test_b.py")]
    assert [(attempt.number, attempt.ending) for attempt in attempts] == [(2, False)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_detaches(night: Night, how: signal.Signals) -> None:
    session = night.project.begin("-m", "cluster", "--on-interrupt=detach")
    session.until(night.is_under_way)
    session.send(how)
    assert session.ends() == pytest.ExitCode.INTERRUPTED
    line = r"[123] unfinished jobs? without a session from now on: pytest --resume=\S+ goes on with"
    assert re.search(line, session.said)
    night.goes_on()


def test_left_while_jobs_are_submitted(night: Night) -> None:
    """One that comes after the last word of the session is not submitted: nobody would know of it."""
    program = """
import os, signal, threading, time
from platforms.rundir.session_journal import Journal
from platforms.schedulers.local import LocalScheduler

end, submit, over = Journal.end, LocalScheduler.submit, threading.Event()

def ended(self, how):
    end(self, how)
    over.set()
    time.sleep(2)

def slow(self, *words):
    if not over.is_set():
        os.kill(os.getpid(), signal.SIGINT)
    over.wait()
    return submit(self, *words)

Journal.end, LocalScheduler.submit = ended, slow
"""
    night.project.platform("cluster", "max_running: 2\npoll_s: 600\n")  # all in one turn
    session = night.imports(program, "-m", "cluster", "--run-id=17", "--on-interrupt=detach")
    assert session.ends() == pytest.ExitCode.INTERRUPTED, session.said
    assert not list(night.path.glob("runs/17/test_b*/pid"))
    night.project.platform("cluster", "max_running: 2\n")
    night.goes_on("--resume=17")


# --- a terminal ------------------------------------------------------------------------------------------------------


def test_ctrl_c_at_a_terminal(night: Night) -> None:
    terminal = Terminal(night.project, "-m", "cluster")
    terminal.until(night.is_under_way)
    terminal.types(b"\x03")
    assert terminal.ends() == pytest.ExitCode.INTERRUPTED
    assert re.search(r"cancelling [123] unfinished job", terminal.said)  # of one that has ended all is written first
    assert not (night.marks / "b/ended").exists()
    result = night.project.pytest("--resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--resume: no run in *runs is unfinished*"])


def test_ctrl_c_twice_says_what_may_be_left(night: Night) -> None:
    """A scheduler that takes its time to cancel, as one far away does."""
    program = "import pathlib, time\nfrom platforms.schedulers.local import LocalScheduler\n"
    program += "LocalScheduler.cancel = lambda self, jobs: (pathlib.Path('begun').touch(), time.sleep(600))\n"
    terminal = Terminal(night.project, "-m", "cluster", "--run-id=17", *night.plugin(program))
    terminal.until(night.is_under_way)
    terminal.types(b"\x03")
    terminal.until(lambda: "cancelling" in terminal.said and (night.path / "begun").exists())
    terminal.types(b"\x03")
    assert terminal.ends() == pytest.ExitCode.INTERRUPTED
    said = terminal.said
    assert "interrupted while its jobs were cancelled; these may still run" in said
    assert re.search(r"it-1x2gpu-k\w{7} on cluster: (submitted|queued|running)", said), said  # as it was last seen
    assert re.search(r"kill \d+  # ends the whole job", said), said
    night.goes_on("--resume=17")  # they were not gone, and nothing is lost


def test_a_terminal_that_is_closed_leaves_the_jobs_alone(night: Night) -> None:
    terminal = Terminal(night.project, "-m", "cluster")
    terminal.until(night.is_under_way)
    terminal.close()
    terminal.session.ends()
    night.is_left()
    night.goes_on()


@pytest.mark.nightly("harness/session_end.py", "harness/plugin.py", "harness/console.py")
def test_a_hangup_before_the_terminal_refuses_a_line(night: Night) -> None:
    """Then pytest itself meets a terminal that has gone, when it reports the end. A dumb one has no live block, which
    would be erased, and so refused, before that."""
    terminal = Terminal(night.project, "-m", "cluster", TERM="dumb")
    terminal.until(night.is_under_way)
    terminal.session.send(signal.SIGSTOP)
    terminal.close()
    terminal.session.send(signal.SIGHUP)
    terminal.session.send(signal.SIGCONT)
    terminal.session.ends()
    night.is_left()
    night.goes_on()


@pytest.mark.nightly("harness/session_end.py", "harness/plugin.py", "harness/console.py")
def test_a_hangup_after_the_terminal_refused_a_line(night: Night) -> None:
    """The kernel refuses writes (EIO) a moment before it sends SIGHUP, so the signal can meet a session that is ending.

    This session ignores the kernel's signal and sends it to itself at the latest moment.
    """
    program = "import os, signal, pytest\n\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    program += "@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish():\n    os.kill(os.getpid(), signal.SIGHUP)\n"
    terminal = Terminal(night.project, "-m", "cluster", *night.plugin(program))
    terminal.until(night.is_under_way)
    terminal.close()
    terminal.session.ends()
    night.is_left()
    night.goes_on()
