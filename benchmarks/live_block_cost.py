"""What the live block of a session costs: the lines of a terminal on N jobs, once a second at most.

python benchmarks/live_block_cost.py [--jobs 200] [--draws 200]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.progress_lines import block_lines
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, State, Status
from platforms.results.log_reader import Progress
from platforms.runner import Job
from platforms.schedulers import Submitted

AT_ONCE = 20
ROWS = 40  # of the terminal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    jobs = _jobs(options.jobs)
    began = time.process_time()
    for _ in range(options.draws):
        block_lines(jobs[0], jobs, ROWS)
    milliseconds = 1000 * (time.process_time() - began) / options.draws
    print(f"{options.jobs} jobs: {milliseconds:.2f} ms of CPU time a draw, at most one draw a second")
    return 0


def _jobs(count: int) -> list[Job]:
    """Jobs of one platform, of which the first ones run and report their progress."""
    platform = Platform(name="far", max_running=AT_ONCE)
    layout = Layout(1, 4, "gpu")
    jobs = []
    for number in range(count):
        spec = JobSpec(f"job-{number}", f"test_a.py::test_a[far-1x4gpu-{number}]", "far", layout, ())
        job = Job(spec, platform, Path())
        if number < AT_ONCE:
            job.submission = Submitted(spec, str(number), Path())
            job.status = Status(State.RUNNING, submitted_s=time.time() - 90, started_s=time.time() - 60)
            job.progress = Progress(
                phase="window", step=3, steps=10, samples_per_s=900.0, loss=1.5, left_s=200.0 + number
            )
        jobs.append(job)
    return jobs


if __name__ == "__main__":
    sys.exit(main())
