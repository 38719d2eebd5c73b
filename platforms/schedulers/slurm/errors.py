"""What an error of Slurm's commands means: the controller did not answer, or it refused, for now or for good."""

from __future__ import annotations

import re

from platforms.job import State

# The controller may or may not have done what it was asked for.
UNSURE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Unexpected message received|"
    r"Transport endpoint is not connected|Connection (refused|reset|timed out)|Communication connection failure|"
    r"Message (send|receive) failure|Munge (encode|decode) failed|Protocol authentication error|"
    r"Slurm temporarily unable to accept job|Resource temporarily unavailable",
    re.IGNORECASE,
)

# No node there has what is asked for, or not as many do.
_TOO_MUCH = re.compile(
    r"Requested node configuration is not available|Node count specification invalid|More processors requested than|"
    r"Memory specification can not be satisfied|Requested time limit is invalid",
)


def refusal_state(said: str) -> State:
    """What a refusal of sbatch means, by its words."""
    return State.NEVER_ADMISSIBLE if _TOO_MUCH.search(said) else State.SUBMIT_REFUSED
