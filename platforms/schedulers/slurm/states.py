"""What each of Slurm's job states, pending reasons and node states means to us."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

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


# A job that names its nodes pends with this reason while one of them is out of service. Other causes of
# ReqNodeNotAvail, such as a reservation of others, pass by themselves.
_ASKED_NODE_IS_OUT = re.compile(r"ReqNodeNotAvail,\s*UnavailableNodes:")

# sinfo's words for a node without the mark that may follow them: what the node is to a job.
_NODE_STATES: Mapping[str, Literal["idle", "busy", "reserved", "drained", "down"]] = MappingProxyType(
    {
        "idle": "idle",
        "allocated": "busy",
        "blocked": "busy",
        "completing": "busy",
        "mixed": "busy",
        "perfctrs": "busy",
        "planned": "busy",
        "maint": "reserved",
        "reserved": "reserved",
        "drained": "drained",
        "draining": "drained",
        "fail": "drained",
        "failing": "drained",
    }
)
_STATE_MARKS = "*~#!%$@^-+"
# It comes back by itself: it boots, a reboot is asked for, or it is silent and not down yet.
_COMES_BACK = re.compile(r"(reboot|boot|power|unknown|unk\b).*|.*[#@^]|(idle|allocated|mixed|completing|planned)\*")


def node_state(text: str) -> Literal["idle", "busy", "reserved", "booting", "drained", "down"]:
    """What one of sinfo's states is to a job that asks for the node. A word that we do not know means down."""
    text = text.lower()
    if _COMES_BACK.fullmatch(text):
        return "booting"
    return _NODE_STATES.get(text.rstrip(_STATE_MARKS), "down")


def asked_node_is_out(reason: str) -> bool:
    """Return whether a pending job waits for a node that is out of service, among those that it names."""
    return bool(_ASKED_NODE_IS_OUT.match(reason.strip().lstrip("(")))


def can_never_start(reason: str) -> bool:
    """Return whether waiting does not make a pending job's reason go away."""
    return bool(_NEVER.match(reason.strip().lstrip("(")))
