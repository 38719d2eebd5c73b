"""What a job costs us when the job itself costs nothing: `true`, N times, by the runner and the scheduler local.

python benchmarks/harness_cost.py [--jobs 50] [--at-once 1]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, job_name
from platforms.runner import Runner


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HPC_ML_BENCH_LOCK"] = f"{folder}/lock"
        platform, layout = Platform(name="local", max_running=options.at_once, poll_s=0.02), Layout(1, 1, "cpu")
        runner = Runner(Path(folder), "cost")
        begin, cpu = time.perf_counter(), time.process_time()
        for number in range(options.jobs):
            test = f"test_true.py::test_true[{number}]"
            name = job_name("true", layout, "cost", test)
            runner.add(JobSpec(name, test, "local", layout, ("true",), time_limit_s=60), platform)
        for job in runner.jobs:
            runner.wait(job, deadline=time.monotonic() + 60)
            job.result()
        wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{options.jobs} jobs, {options.at_once} at once: {1000 * wall_s / options.jobs:.0f} ms wall and", end=" ")
    print(f"{1000 * cpu_s / options.jobs:.1f} ms of this process's CPU time per job")
    return 0


if __name__ == "__main__":
    sys.exit(main())
