"""Slurm's own word on a script, without a job: `sbatch --test-only`."""

from __future__ import annotations

import shlex

from platforms.job import AwayError
from platforms.schedulers.slurm.environment import submission_preamble
from platforms.schedulers.slurm.errors import UNSURE
from platforms.transports import Transport

LIMIT_S = 120.0
_ASK = """\
{clean}
printf %s {text} | sbatch --test-only
"""


def sbatch_test_only(transport: Transport, text: str) -> tuple[bool, str]:
    """Whether it would take the script, and its words in one line. Raises AwayError when the controller is away."""
    script = _ASK.format(clean=submission_preamble(text), text=shlex.quote(text))
    done = transport.run(["sh", "-s"], input=script.encode(errors="surrogateescape"), timeout_s=LIMIT_S)
    lines = (done.stderr + done.stdout).decode(errors="replace").splitlines()
    words = "; ".join(line.strip() for line in lines if line.strip()) or f"exit code {done.exit_code}"
    if done.exit_code and UNSURE.search(words):
        raise AwayError(f"{transport.where}: {words}")
    return done.exit_code == 0, words
