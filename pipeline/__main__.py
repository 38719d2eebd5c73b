"""`python -m pipeline STEP`: one step of a CI pipeline, with its settings in BENCH_* variables (docs/ci.md)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import choice, steps, variables
from platforms.job import BenchError

WITHOUT_PLATFORM = ("report",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do one step. Returns the exit code for the CI job (docs/ci.md)."""
    parser = argparse.ArgumentParser(prog="python -m pipeline", description=__doc__)
    parser.add_argument("step", choices=[*steps.STEPS, "cleanup"])
    parser.add_argument(
        "--project",
        type=Path,
        default=Path(os.environ.get("CI_PROJECT_DIR", ".")),
        metavar="DIR",
        help="the checkout of the centre's project (default: $CI_PROJECT_DIR, else this folder)",
    )
    options = parser.parse_args(arguments)
    if "GITLAB_CI" in os.environ:
        os.environ["CI_PROJECT_DIR"] = str(options.project.absolute())  # commands that are printed do not name it
    try:
        job = variables.read(
            os.environ, options.project.absolute(), needs_platform=options.step not in WITHOUT_PLATFORM
        )
        if options.step == "cleanup":
            return steps.cleanup(job, os.environ.get("CI_JOB_STATUS", ""))
        idle = "" if options.step in WITHOUT_PLATFORM else choice.why_idle(job, options.step)
        if idle:
            print(idle)
            return 0
        return steps.STEPS[options.step](job)
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return steps.REFUSED


if __name__ == "__main__":
    sys.exit(main())
