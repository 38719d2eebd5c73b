"""What the suite must know of Slurm before there is a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from platforms.config.scheduler_keys import SchedulerKeys
from platforms.schedulers import Backend, Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform


class SlurmBackend(Backend):
    """Slurm on a cluster, through the commands of its login node."""

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        needed={"work_dir": "write an absolute path that login and compute nodes see"}
    )

    def connect(self, platform: Platform) -> Scheduler:
        from platforms.schedulers.slurm.scheduler import SlurmScheduler

        return SlurmScheduler(platform)
