"""qsub, qstat and qdel of a PBS server that is a folder: it runs every job at once, as a process of this machine.

Which command it is follows from the name under which it is called; $FAKE_PBS names the folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

SERVER = Path(os.environ["FAKE_PBS"])
CANCELLED = 256 + signal.SIGTERM


def qsub(words: list[str]) -> int:
    script = Path(words[-1]).absolute()
    options = dict(re.findall(r"^#PBS -([No]) (.*)$", script.read_text(), re.MULTILINE))
    job = SERVER / f"{len(list(SERVER.iterdir())) + 1}.fake"
    job.mkdir()
    (job / "name").write_text(options["N"])
    (job / "script").write_text(script.read_text())
    runner = subprocess.Popen(
        [sys.executable, __file__, "run", str(job), options["o"]],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    (job / "pid").write_text(str(runner.pid))
    print(job.name)
    return 0


def run(job: Path, log: str) -> int:
    """Run a job's script until it ends; a server of its own would do this on a node."""
    started = int(time.time())
    with Path(log).open("wb") as output:
        code = subprocess.call(["sh", str(job / "script")], stdout=output, stderr=subprocess.STDOUT)
    finish(job, code, started)
    return 0


def finish(job: Path, code: int, started: int) -> None:
    draft = job / f"exit.{os.getpid()}"
    draft.write_text(f"    stime = {started}\n    mtime = {int(time.time())}\n    Exit_status = {code}\n")
    draft.replace(job / "exit")


def qstat(words: list[str]) -> int:
    if "-B" in words:
        return 0
    if "-Q" in words:
        print("Queue  Max", "-----  ---", "workq    0", "long     0", sep="\n")
        return 0
    with_ended = "-xf" in words
    named = [word for word in words if not word.startswith("-")]
    for job in sorted(SERVER.iterdir()):
        ended = (job / "exit").exists()
        if (named and job.name not in named) or (ended and not with_ended):
            continue
        print(f"Job Id: {job.name}\n    Job_Name = {(job / 'name').read_text()}")
        print(f"    job_state = {'F' if ended else 'R'}")
        print((job / "exit").read_text() if ended else "")
    return 0


def qdel(words: list[str]) -> int:
    for name in words:
        job = SERVER / name
        if not (job / "exit").exists():
            finish(job, CANCELLED, int(time.time()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int((job / "pid").read_text()), signal.SIGKILL)
    return 0


if __name__ == "__main__":
    command = Path(sys.argv[0]).name
    if sys.argv[1:2] == ["run"]:
        sys.exit(run(Path(sys.argv[2]), sys.argv[3]))
    sys.exit({"qsub": qsub, "qstat": qstat, "qdel": qdel}[command](sys.argv[1:]))
