"""Six jobs of five seconds on six platforms, by one command: how long that takes, and what the time goes into.

    python benchmarks/six_platforms.py [--platforms 6] [--seconds 5] [--rounds 3]

Each platform is this machine with a lock of its own, so that none waits for another. Prints Markdown, a column a round:
what happens one after the other, in seconds since the command was typed. The last job's last word is its own `date`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.against_reframe import ROOT, SITE, busy, clean_environ

PLATFORM = """scheduler: local
device: cpu
layouts: {{default: [1x1]}}
marks: [six]
time_limit: 0:05:00
env: {{HPC_ML_BENCH_LOCK: {lock}}}
"""
STEPS = (
    "the first job is handed over",
    "the last job is handed over",
    "the last job starts",
    "the last job's last word",
    "its outcome is on the disk",
    "its test has passed",
    "the prompt is back",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platforms", type=int, default=6)
    parser.add_argument("--seconds", default="5", help="of each job")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        write_project(project, options.platforms)
        session(project, 1, "0")  # what it compiles on the way is not counted
        print(f"{os.cpu_count()} CPUs, {busy():.0%} busy with other work before.\n")
        rounds = [session(project, options.platforms, options.seconds) for _ in range(options.rounds)]
    print(f"| {options.platforms} jobs of {options.seconds} s, s since the command |{' |' * options.rounds}")
    print(f"|{'---|' * (options.rounds + 1)}")
    for number, step in enumerate(STEPS):
        print(f"| {step} | {' | '.join(f'{times[number]:.2f}' for times in rounds)} |")
    first_to_last = " | ".join(f"**{times[4] - times[0]:.2f}**" for times in rounds)
    print(f"| from the first submission to the last outcome | {first_to_last} |")
    return 0


def write_project(folder: Path, platforms: int) -> None:
    """A test that runs on each platform, and a site with these."""
    names = [f"machine{number}" for number in range(platforms)]
    (folder / "site" / "platforms").mkdir(parents=True)
    for name in names:
        text = PLATFORM.format(lock=folder / f"{name}.lock")
        (folder / "site" / "platforms" / f"{name}.yaml").write_text(text)
    (folder / "site" / "site.yaml").write_text(f"enabled: [{', '.join(names)}]\n")
    ini = (ROOT / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {ROOT}")
    (folder / "pytest.ini").write_text(ini)
    shutil.copy(SITE / "test_sleeping.py", folder)


def session(folder: Path, platforms: int, seconds: str) -> list[float]:
    """When what of STEPS happened. Raises SystemExit with the session's output when it fails."""
    runs, notes = folder / "runs", folder / "notes"
    shutil.rmtree(runs, ignore_errors=True)
    notes.write_text("")
    which = ["-m", "six"] if platforms > 1 else ["--platform", "machine0"]
    command = [sys.executable, "-m", "pytest", "-q", *which, "test_sleeping.py"]
    own = {"JOBS": "1", "JOB_S": seconds, "JOB": str(SITE / "job.sh"), "NOTES": str(notes)}
    began_s = time.time()
    done = subprocess.run(command, cwd=folder, env={**clean_environ(folder), **own}, capture_output=True, text=True)
    ended_s = time.time()
    results = [path for path in runs.glob("*/*/run.json") if not path.parent.parent.is_symlink()]
    if done.returncode or len(results) != platforms:
        sys.exit(f"{' '.join(command)}: {len(results)} of {platforms} results\n{done.stdout}{done.stderr}")
    told = [json.loads(path.read_text()) for path in results]
    words = [re.findall(r"^ended: (\S+)", (path.parent / "log").read_text(), re.MULTILINE)[-1] for path in results]
    submitted, started = ([one[name] for one in told] for name in ("submitted_s", "started_s"))
    passed = [float(line.split()[2]) for line in notes.read_text().splitlines()]
    known = [path.stat().st_mtime for path in results]
    times = [min(submitted), max(submitted), max(started), max(map(float, words)), max(known), max(passed), ended_s]
    return [at_s - began_s for at_s in times]


if __name__ == "__main__":
    sys.exit(main())
