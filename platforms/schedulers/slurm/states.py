"""What each of Slurm's job states and pending reasons means to us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from platforms.job import State

# Every state of Slurm's manuals (job_state_string in its source has the same words). None: the exit code decides.
STATES: Mapping[str, State | None] = MappingProxyType(
    {
        "PENDING": State.QUEUED,
        "EXPEDITING": State.QUEUED,
        "CONFIGURING": State.STARTING,
        "POWER_UP_NODE": State.STARTING,
        "RUNNING": State.RUNNING,
        "COMPLETING": State.RUNNING,
        "RESIZING": State.RUNNING,
        "SIGNALING": State.RUNNING,
        "STAGE_OUT": State.RUNNING,
        "STOPPED": State.RUNNING,
        "SUSPENDED": State.RUNNING,
        "UPDATE_DB": State.RUNNING,
        "COMPLETED": None,
        "FAILED": None,
        "BOOT_FAIL": State.NODE_LOST,
        "CANCELLED": State.CANCELLED,
        "DEADLINE": State.START_DEADLINE,
        "LAUNCH_FAILED": State.NOT_STARTABLE,
        "NODE_FAIL": State.NODE_LOST,
        "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
        "PREEMPTED": State.PREEMPTED,
        "RECONFIG_FAIL": State.NODE_LOST,
        "REVOKED": State.LOST,
        "SPECIAL_EXIT": State.EXITED,
        "TIMEOUT": State.TIME_LIMIT,
        # Slurm would start the job again, and our script refuses a second start
        "REQUEUED": State.PREEMPTED,
        "REQUEUE_FED": State.PREEMPTED,
        "REQUEUE_HOLD": State.PREEMPTED,
        "RESV_DEL_HOLD": State.NEVER_ADMISSIBLE,
    }
)

# With these reasons a pending job starts only if a person changes something. squeue writes them with or without spaces.
_NEVER = re.compile(
    r"Partition(NodeLimit|TimeLimit|Config)|(QOS|Assoc|AssocGrp|QOSGrp)\w*PerJob\w*|QOSMaxWallDurationPerJobLimit|"
    r"DependencyNeverSatisfied|JobHeld(User|Admin)|BadConstraints|InvalidAccount|InvalidQOS|AccountNotAllowed|"
    r"QOSNotAllowed|ReservationDeleted|InactiveLimit|launch\W?failed\W?requeued\W?held|JobLaunchFailure",
    re.IGNORECASE,
)


def can_never_start(reason: str) -> bool:
    """Return whether waiting does not make a pending job's reason go away."""
    return bool(_NEVER.match(reason.strip().lstrip("(")))
