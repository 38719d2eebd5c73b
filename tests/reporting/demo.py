"""Shows what the suite is for: a morning at a centre, by the commands that a person types. `make demo` starts it.

    python -m tests.reporting.demo [FOLDER]

FOLDER, by default a new temporary one, becomes a site's folder with the last 75 nights of three machines. They are
simulated (report_year.py): how times vary was recorded on a real machine, and what happened to the machines is made
up. The suite's own gate has judged each run, in the order of the nights. Each command is printed, then run as it
stands there. Nothing trains, no job is submitted, and no file is written elsewhere.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.reporting.report_year import DAY, FEWEST_NIGHTS, make_year

ROOT = Path(__file__).resolve().parents[2]
MACHINES = 3  # those with a driver upgrade, a new file system and a slow node
NODES_OF = "alps_clariden"
# `nodes` asks a platform's scheduler for all of its nodes. The shipped file names a cluster that is not the reader's.
# This one may be asked anywhere: no Slurm has a node in its partition.
PLATFORM = """\
# Stands in for the shipped file, so that the demo asks no cluster.
replaces: true
scheduler: slurm
work_dir: /nonexistent
device: gpu
layouts: {default: [1x4]}
slurm: {partition: hpc-ml-bench-demo}
"""
PURPOSE = """\
hpc-ml-bench trains real networks on your machines every night. In the morning
it says what has become slower, since when, in which part of a step, on which
node, and what changed at that time. You answer, and it goes on."""
WHAT_THIS_IS = """\
Below are three machines of a simulated centre, with {jobs:,} jobs in {nights} nights,
until last night. How times vary was recorded on a real machine; what happened
to the machines is made up. Each answer is computed now, by the command above
it. To type the commands yourself:
"""
IN_THE_END = """\
{purpose}

The page:            {page}
                     (one file: open it in a browser, or copy it to where one is)
What else there is:  python -m reporting --help
Your own numbers:    make bench
To remove the demo:  rm -r {folder}"""


class Step(NamedTuple):
    """What a person wants to know, and what is typed after `python -m reporting`."""

    said: str
    typed: Sequence[str]


def steps(folder: Path, today: datetime.date) -> list[Step]:
    """The morning, command by command."""
    red = ("isambard_ai", "deepcam", "tuned")
    ticket = ("--ticket", "https://gitlab.example.org/hpc/tickets/318", "--until", str(today + 14 * DAY))
    return [
        Step("Is anything slower than it was?", ["trend"]),
        Step("One red test: by how much, since when, where, why, and what can I answer?",
             ["judge", *red]),
        Step("Its data have moved, and it waits for them. A ticket is open; I say so:",
             ["ack", "deepcam[isambard_ai-1x4gpu-tuned]", *ticket]),
        Step("The same question again. Known until that day; red again if it gets worse:",
             ["judge", *red]),
        Step("Another machine, six slow tests. What was new in the first slow night?",
             ["show", "eidf_a100", "resnet50", "tuned", "--runs", "14"]),
        Step("The third machine: is it the machine, or one node of it?", ["nodes", NODES_OF]),
        Step("All of it as a page:", ["html", "-o", str(folder / "report.html")]),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="a new folder (default: a temporary one)")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="hpc-ml-bench-demo-"))).absolute()
    today = datetime.date.today()
    print(f"{PURPOSE}\n\n(The nights are being made: some seconds.)\n", flush=True)
    jobs = _make_centre(folder, today)
    print(WHAT_THIS_IS.format(jobs=jobs, nights=FEWEST_NIGHTS))
    for line in _before_typing(folder):
        print(f"    {line}")
    environ = {**os.environ, "HPC_ML_BENCH_SITE": str(folder)}
    for number, step in enumerate(steps(folder, today), 1):
        print(f"\n--- {number}. {step.said}\n")
        _type_in(step.typed, environ)
    shown = shlex.quote(str(folder))
    print(f"\n---\n\n{IN_THE_END.format(purpose=PURPOSE, page=folder / 'report.html', folder=shown)}")
    return 0


def _make_centre(folder: Path, today: datetime.date) -> int:
    """Write the site's folder. Returns how many jobs its history has."""
    try:
        jobs = make_year(folder, today - DAY, nights=FEWEST_NIGHTS, platforms=MACHINES)
    except ValueError as error:
        raise SystemExit(f"demo: {error}") from None
    (folder / "platforms").mkdir(exist_ok=True)
    (folder / "platforms" / f"{NODES_OF}.yaml").write_text(PLATFORM, encoding="utf-8")
    return jobs


def _before_typing(folder: Path) -> list[str]:
    """What is typed once, so that the commands run in another shell as they stand there."""
    lines = [f"export HPC_ML_BENCH_SITE={shlex.quote(str(folder))}"]
    if sys.prefix != sys.base_prefix:
        lines.insert(0, f". {shlex.quote(str(Path(sys.prefix, 'bin', 'activate')))}")
    return lines


def _type_in(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Print a command, and run it. Exit code 1 is bad news. Raises SystemExit for any other: it could not be done."""
    print(f"$ {shlex.join(['python', '-m', 'reporting', *words])}", flush=True)
    command = [sys.executable, "-m", "reporting", *words]
    code = subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode
    if code not in (0, 1):
        raise SystemExit(f"demo: the command has ended with exit code {code}")
    if code == 1:
        print("(exit code 1, for cron and CI)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
