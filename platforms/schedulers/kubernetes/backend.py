"""What the suite must know of Kubernetes before there is a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from platforms.config.scheduler_keys import SchedulerKeys
from platforms.schedulers import Backend, Scheduler

if TYPE_CHECKING:
    from platforms.config.schema import Platform

_WITHOUT_MEANING = ("transport", "host", "ssh_config", "login_shell", "work_dir", "modules", "container")


def _check_data_dir(keys: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Pods see the data sets where a volume is mounted, so the folder is an absolute one."""
    folder = str(keys.get("data_dir", ""))
    if not folder.startswith(("/", "<")):
        why = "is not absolute" if folder else "is missing"
        yield "data_dir", f"{why} (write the folder of the data sets as the pods see it: /data)"


class KubernetesBackend(Backend):
    """A namespace of a cluster."""

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys(
        defaults={"max_running": 8, "poll_s": 1.0},  # a look reads what a watch has brought, and asks no server
        refused=dict.fromkeys(_WITHOUT_MEANING, "means nothing to scheduler kubernetes (remove it; see `kubernetes:`)"),
        check=_check_data_dir,
    )

    def connect(self, platform: Platform) -> Scheduler:
        from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler

        return KubernetesScheduler(platform)
