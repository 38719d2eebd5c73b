"""What the suite must know of Slurm before there is a job."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

from platforms import transports
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.schedulers import Backend, LiveJobs, Scheduler

if TYPE_CHECKING:
    from platforms.config.draft import DraftLine, DraftRequest
    from platforms.config.schema import Platform
    from platforms.schedulers import Maintenance, NodeState
    from platforms.schedulers.doctor_steps import Step, Visit


class SlurmBackend(Backend):
    """Slurm on a cluster, through the commands of its login node."""

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        needed={"work_dir": "write an absolute path that login and compute nodes see"}
    )
    init_options = ("ssh", "transport", "ssh_config", "partition")
    device_keys = "`python:`, `modules:`, `slurm: {gpus: …}`"

    def connect(self, platform: Platform) -> Scheduler:
        from platforms.schedulers.slurm.scheduler import SlurmScheduler

        return SlurmScheduler(platform)

    def maintenance(self, platform: Platform, reservation: str | None = None) -> Maintenance | None:
        from platforms.schedulers.slurm import maintenance

        with closing(transports.connect(platform)) as transport:
            return maintenance.ask(transport, platform, reservation)

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        from platforms.schedulers.slurm import node_states, queries

        with closing(transports.connect(platform)) as transport:
            return node_states.nodes_of_platform(queries.ask_nodes(transport), platform)

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        from platforms.schedulers.slurm import queries

        with closing(transports.connect(platform)) as transport:
            return queries.nodes_of_job(transport, job_id)

    def start_of_job(self, platform: Platform, job_id: str) -> float | None:
        from platforms.schedulers.slurm import queries

        with closing(transports.connect(platform)) as transport:
            return queries.start_of_job(transport, job_id)

    def drain_command(self, node: str, reason: str) -> str:
        from platforms.schedulers.slurm import node_states

        return node_states.drain_command(node, reason)

    def draft(self, request: DraftRequest) -> Sequence[DraftLine]:
        from platforms.schedulers.slurm import draft

        return draft.draft(request)

    def live_jobs(self) -> LiveJobs:
        from platforms.schedulers.slurm import queries

        return queries.LIVE_JOBS

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        from platforms.schedulers import doctor_steps
        from platforms.schedulers.slurm import doctor

        return (
            ("transport", doctor_steps.transport),
            ("commands", doctor.commands),
            ("work_dir", doctor_steps.work_dir),
        )

    def doctor_trials(self, visit: Visit) -> Sequence[Step]:
        from platforms.schedulers.slurm import doctor

        return (("sbatch", doctor.sbatch),)
