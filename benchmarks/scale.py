"""What many jobs cost us: N jobs on twenty platforms, by the real runner, journal and folders; the schedulers and the
clock are simulated (tests/simulated.py), so that hours pass in seconds.

    python benchmarks/scale.py [--jobs 100 1000 10000] [--platforms 20] [--max-running 50] [--folder DIR]

Each N is a process of its own; its memory is what the system counts (VmHWM), less that of no job at all. A *look* is
one turn of a platform: every `poll_s` (10 s) at most one query, about all of its jobs. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.simulated import POLL_S, Session, counted_fsyncs

CALLS = ("submit", "read", "clean", "gaps", "hints")


def main() -> int:
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        session = Session(Path(folder), options.platforms, options.max_running)
        if options.one is not None:
            print(json.dumps(measured(session, options.one)))
        else:
            table(options)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--platforms", type=int, default=20)
    parser.add_argument("--max-running", type=int, default=50, help="of each platform")
    parser.add_argument("--folder", type=Path, help="where the run folders are made, and removed again")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(session: Session, jobs: int) -> dict[str, float]:
    """One session's figures."""
    before_mib, wall, cpu = peak_mib(), time.perf_counter(), time.process_time()
    with counted_fsyncs() as fsyncs:
        runner = session.run(jobs)
    cost = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "peak_mib": peak_mib()}
    asked = {name: session.counts[name] / jobs for name in CALLS}
    looks = [max(1.0, (times[-1] - times[0]) / POLL_S + 1) for times in session.queries]
    queries = sum(len(times) for times in session.queries) / sum(looks)
    gaps = [later - first for times in session.queries for first, later in pairwise(times)]
    return {
        **cost,
        **asked,
        "jobs": len(runner.jobs),
        "more_mib": cost["peak_mib"] - before_mib,
        "simulated_s": session.clock(),
        "queries": queries,
        "nearest_s": min(gaps, default=POLL_S),
        "changes": session.changes / jobs,
        "journal": session.journal_bytes / jobs,
        "fsyncs": fsyncs["fsync"] / jobs,
    }


def peak_mib() -> float:
    """This process's own; ru_maxrss would count what it was forked from."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def table(options: argparse.Namespace) -> None:
    """A row each N."""
    print(f"{options.platforms} platforms, at most {options.max_running} jobs at once on each.\n")
    columns = ["simulated s", "wall s", "CPU s", "CPU ms a job", "peak MiB", "KiB a job"]
    columns += ["queries a look and platform", "nearest two s", *(f"{name} a job" for name in CALLS)]
    columns += ["changes a job", "journal bytes a job", "fsyncs a job"]
    print(f"| jobs | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}", flush=True)
    for jobs in options.jobs:
        own = ["--one", str(jobs), "--platforms", str(options.platforms), "--max-running", str(options.max_running)]
        place = [] if options.folder is None else ["--folder", str(options.folder)]
        command = [sys.executable, __file__, *own, *place]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row(json.loads(done.stdout))


def row(one: Mapping[str, float]) -> None:
    jobs = one["jobs"]
    cells = [f"{one['simulated_s']:.0f}", f"{one['wall_s']:.1f}", f"{one['cpu_s']:.2f}"]
    cells += [f"{1000 * one['cpu_s'] / jobs:.2f}", f"{one['peak_mib']:.1f}", f"{1024 * one['more_mib'] / jobs:.1f}"]
    cells += [f"{one['queries']:.2f}", f"{one['nearest_s']:.1f}", *(f"{one[name]:.2f}" for name in CALLS)]
    cells += [f"{one['changes']:.1f}", f"{one['journal']:.0f}", f"{one['fsyncs']:.2f}"]
    print(f"| {jobs:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
