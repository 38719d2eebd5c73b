"""What an error of Slurm's commands means: it was not reached, it may have done it, it has no room, or it refused.

The sentences are those of Slurm's slurm_errno.c and auth/munge, 20.11 to 24.11.
"""

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

# The command failed before it sent anything: it had no credential, or no connection.
_NOT_SENT = re.compile(r"Munge encode failed|Unable to contact slurm controller \(connect failure\)")
_PERHAPS_SENT = re.compile(
    r"Munge decode failed|Socket timed out|Zero Bytes were transmitted|Unexpected message received|"
    r"\((send|receive|shutdown) failure\)|Message (send|receive) failure|Connection (reset|timed out)|"
    r"Transport endpoint is not connected",
    re.IGNORECASE,
)

# A user, account or QOS has as many jobs in the queue as it may; one that ends makes room.
_NO_ROOM = re.compile(r"\b(QOS|Assoc)\w*Submit\w*Limit")

# No node there has what is asked for, or not as many do.
_TOO_MUCH = re.compile(
    r"Requested node configuration is not available|Node count specification invalid|More processors requested than|"
    r"Memory specification can not be satisfied|Requested time limit is invalid",
)


def was_not_sent(said: str) -> bool:
    """Whether sbatch failed before it could hand a job over."""
    return bool(_NOT_SENT.search(said)) and not _PERHAPS_SENT.search(said)


def is_no_room(said: str) -> bool:
    """Whether sbatch is refused now, and will not be once a job has ended."""
    return bool(_NO_ROOM.search(said))


def refusal_state(said: str) -> State:
    """What a refusal of sbatch means, by its words."""
    return State.NEVER_ADMISSIBLE if _TOO_MUCH.search(said) else State.SUBMIT_REFUSED
