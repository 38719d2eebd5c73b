"""Shows what the suite is for: a morning at a centre, by the commands that a person types. `make demo` starts it.

    python -m tests.reporting.demo [FOLDER]

FOLDER, by default a new temporary one, becomes a site's folder with the last 75 nights of three machines. They are
simulated (report_year.py): how times vary was recorded on a real machine, and what happened to the machines is made
up. The suite's own gate has judged each run, in the order of the nights. Each command is printed, then run as it
stands there. Nothing trains, no job is submitted, no scheduler is asked, and no file is written elsewhere.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from reporting.report.display import BOLD, display_of
from tests.reporting.report_year import DAY, FEWEST_NIGHTS, make_year

ROOT = Path(__file__).resolve().parents[2]
MACHINES = 3  # those with a driver upgrade, a new file system and a slow node
NODES_OF = "alps_clariden"
# Which command takes a node out of service depends on the scheduler. The shipped file of this machine lacks values of
# its centre.
PLATFORM = """\
# Stands in for the shipped file in the demo. Nothing is submitted there.
replaces: true
scheduler: slurm
work_dir: /nonexistent
device: gpu
layouts: {default: [1x4]}
slurm: {partition: hpc-ml-bench-demo}
"""
SETTLED = datetime.timedelta(hours=26)
"""Of the night that began at 22:00 UTC on the day which it was so long ago, all jobs have ended."""
COMPUTATION = re.compile(r"^(How it was computed.*\n)(.+\n)+", re.MULTILINE)
LEAST_WIDTH = 60
PURPOSE = """\
hpc-ml-bench trains real networks on your machines every night. In the morning
it says what has become slower, since when, in which part of a step, on which
node, and what changed at that time."""
WHAT_THIS_IS = """\
Below are three machines of a simulated centre: {jobs:,} jobs in {nights} nights, until
last night. How times vary was recorded on a real machine; what happened to the
machines is made up. Each answer is computed now, by the command above it. The
pin of a test is its usual number: the median of its first 20 runs.
"""
IN_THE_END = """\
{purpose}

The page, for a browser:
    {page}
More of these nights, in a shell:
{first}
    python -m reporting trend eidf_a100 resnet50 tuned   # one test, night by night
    python -m reporting --help
Your own numbers:
    make bench SIZE=smoke  # trains here, on the GPU or CPU, in a minute or two
                           # after torch is installed; no job is submitted
    docs/first-month.md    # your Slurm or Kubernetes every night: what to type
    docs/reframe.md        # the numbers of your ReFrame, judged like this
To remove the demo:
    rm -r {folder}"""


class Step(NamedTuple):
    """What a person wants to know, and what is typed after `python -m reporting`."""

    said: str
    typed: Sequence[str]
    wrapped: bool = False


def steps(folder: Path, night: datetime.date) -> list[Step]:
    """The morning after a night, command by command."""
    ticket = ("--ticket", "https://example.org/tickets/318", "--until", str(night + 14 * DAY))
    return [
        Step("The verdict: is anything slower than it was?", ["trend"]),
        Step("The slower test of alps_clariden: is it the machine, or one node of it?",
             ["nodes", NODES_OF, "--tonight", str(night)]),
        Step("That of isambard_ai: by how much, where, why, and what can I answer?",
             ["judge", "isambard_ai"], wrapped=True),
        Step("The answer: its data have moved, and a ticket is open. I say so:",
             ["ack", "deepcam[isambard_ai-1x4gpu-tuned]", *ticket], wrapped=True),
        Step("Asked again: nothing is red until that day, unless it gets worse.",
             ["judge", "isambard_ai"], wrapped=True),
        Step("All of it as a page. Seven of the eight slow tests still have no answer:",
             ["html", "-o", str(folder / "report.html")]),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a new folder (default: a temporary one)")
    options = parser.parse_args()
    try:
        _show(options.folder)
    except BrokenPipeError:  # `make demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError) as error:
        raise SystemExit(f"demo: {error}") from None
    return 0


def _show(asked: Path | None) -> None:
    """Make the centre and type the commands. Raises ValueError if the folder has a history, and OSError."""
    print(f"{PURPOSE}\n\n(The nights are being made: some seconds.)\n", flush=True)
    folder = (asked or Path(tempfile.mkdtemp(prefix="hpc-ml-bench-demo-"))).absolute()
    night = (datetime.datetime.now(datetime.UTC) - SETTLED).date()
    jobs = make_year(folder, night, nights=FEWEST_NIGHTS, platforms=MACHINES, site="simulated")
    (folder / "platforms").mkdir(exist_ok=True)
    (folder / "platforms" / f"{NODES_OF}.yaml").write_text(PLATFORM, encoding="utf-8")
    print(WHAT_THIS_IS.format(jobs=jobs, nights=FEWEST_NIGHTS))
    display = display_of(sys.stdout)
    environ = {**os.environ, "HPC_ML_BENCH_SITE": str(folder)}
    for number, step in enumerate(steps(folder, night), 1):
        heading = display.painted(f"--- {number}. {step.said}", BOLD)
        print(f"{heading}\n\n$ {_typed(['python', '-m', 'reporting', *step.typed])}", flush=True)
        _run(step, environ)
    print(f"---\n\n{_end(folder)}", flush=True)


def _end(folder: Path) -> str:
    """Where all of it is, and how it goes on."""
    first = [f"export HPC_ML_BENCH_SITE={shlex.quote(str(folder))}"]
    if sys.prefix != sys.base_prefix:
        first.insert(0, f". {shlex.quote(str(Path(sys.prefix, 'bin', 'activate')))}")
    return IN_THE_END.format(
        purpose=PURPOSE,
        page=folder / "report.html",
        first="\n".join(f"    {line}" for line in first),
        folder=shlex.quote(str(folder)),
    )


def _typed(words: Sequence[str]) -> str:
    """A command as it is typed, in lines that a shell takes for one."""
    line = " ".join(shlex.quote(word).replace(" ", "\0") for word in words)
    lines = textwrap.wrap(line, 76, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace("\0", " ")


def _run(step: Step, environ: Mapping[str, str]) -> None:
    """Run a command. Exit code 1 is bad news. Raises SystemExit for any other: it could not be done."""
    command = [sys.executable, "-m", "reporting", *step.typed]
    caught = subprocess.PIPE if step.wrapped else None
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=caught, text=True, errors="replace", check=False)
    if step.wrapped:
        print("\n".join(_wrapped(done.stdout)))
    if done.returncode == 128 + signal.SIGPIPE:
        raise BrokenPipeError
    if done.returncode not in (0, 1):
        raise SystemExit(f"demo: the command has ended with exit code {done.returncode}")
    print("(exit code 1, for cron and CI)\n" if done.returncode else "", flush=True)


def _wrapped(text: str) -> list[str]:
    """The lines of a command in the terminal's width, without the computation. What can be copied is one line."""
    width = max(LEAST_WIDTH, shutil.get_terminal_size().columns)
    found = []
    for line in COMPUTATION.sub(r"\1  (left out here)\n", text).splitlines():
        if not line or line.startswith("  python -m "):
            found.append(line)
        else:
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            found += textwrap.wrap(
                line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
