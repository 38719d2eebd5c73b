"""How long the leftovers of a run are kept before `prune` removes them, on this machine and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from platforms.rundir.accepted_runs import AcceptedRuns

DAY_S = 86400.0


@dataclass(frozen=True)
class Retention:
    """For how many days after its last change a leftover is kept. A failed run is kept longer, for inspection.

    `accepted` names the runs that are kept for ever.
    """

    days: float = 30.0
    failed_days: float = 180.0
    accepted: AcceptedRuns = field(default_factory=AcceptedRuns)

    def __str__(self) -> str:
        longer = max(self.days, self.failed_days)
        return f"{self.days:g} days after its last change a run may go, {longer:g} days where it failed"

    def young(self, age_s: float) -> bool:
        """Whether its age alone keeps a leftover."""
        return age_s < self.days * DAY_S

    def failed(self, age_s: float, why: str) -> str:
        """Why a leftover that is no longer young is still kept; empty when it goes.

        Args:
            why: what failed; empty when nothing did.
        """
        days = max(self.days, self.failed_days)
        if why and age_s < days * DAY_S:
            return f"{why}: {days:g} days"
        return ""


@dataclass(frozen=True)
class Leftover:
    """Something that a run has left: a run's folder, a job's folder or a code archive.

    `age_s` counts from its last change. `stays` says why it is kept; when that is empty and it is not `young`, it goes.
    """

    name: str
    age_s: float
    size_bytes: int
    stays: str = ""
    young: bool = False

    @property
    def goes(self) -> bool:
        return not self.stays and not self.young


@dataclass(frozen=True)
class NeededJobs:
    """Which folders of jobs must stay on other machines, and why.

    Attributes:
        jobs: why, by the name of a job.
        unread: why a run cannot be read, by its id. All folders of its jobs must stay, since their names are unknown.
    """

    jobs: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
