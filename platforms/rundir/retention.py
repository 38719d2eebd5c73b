"""How long the leftovers of a run are kept before `prune` removes them, on this machine and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

DAY_S = 86400.0


@dataclass(frozen=True)
class Leftover:
    """Something that a run has left: a run's folder, or what a platform has of one of its jobs.

    Attributes:
        name: as people see it.
        age_s: since its last change.
        owner: the run or the job that has left it.
        size_bytes: None where it is not known.
        stays: why it is kept whatever its age, and later why it is kept at all; empty for what goes.
        unsuccessful: what has failed; empty when nothing has.
        young: only its age keeps it.
    """

    name: str
    age_s: float
    owner: str
    size_bytes: int | None = None
    stays: str = ""
    unsuccessful: str = ""
    young: bool = False

    @property
    def goes(self) -> bool:
        return not self.stays and not self.young


@dataclass(frozen=True)
class Retention:
    """For how many days after its last change a leftover is kept.

    A failed one is kept longer, for inspection.
    """

    days: float = 30.0
    failed_days: float = 180.0

    def __str__(self) -> str:
        return f"{self.days:g} days after its last change a run may go, {self._longer:g} days where it failed"

    @property
    def _longer(self) -> float:
        return max(self.days, self.failed_days)

    def judge(self, leftover: Leftover, needed: Mapping[str, str]) -> Leftover:
        """Decide whether a leftover goes.

        Args:
            needed: the runs or jobs whose leftovers stay whatever their age, and why.
        """
        if leftover.stays:
            return leftover
        if leftover.owner in needed:
            return replace(leftover, stays=needed[leftover.owner])
        if leftover.age_s < self.days * DAY_S:
            return replace(leftover, young=True)
        if leftover.unsuccessful and leftover.age_s < self._longer * DAY_S:
            return replace(leftover, stays=f"{leftover.unsuccessful}: {self._longer:g} days")
        return leftover
