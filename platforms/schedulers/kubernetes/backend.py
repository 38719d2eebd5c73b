"""What the suite must know of Kubernetes before there is a job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from platforms.config.scheduler_keys import SchedulerKeys
from platforms.schedulers import Backend, Leftovers, NodeState, Scheduler

if TYPE_CHECKING:
    from pathlib import Path

    from platforms.config.draft import DraftLine, DraftRequest
    from platforms.config.schema import Platform
    from platforms.schedulers.doctor_steps import Step, Visit

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
        image_below="kubernetes",
    )
    packs_nodes = True
    takes_manifests = True
    commands_see_data = False
    init_options = ("kubeconfig", "context", "namespace", "product")
    device_keys = "`kubernetes: {image: …, resource: …, node_selector: …}`"

    def connect(self, platform: Platform) -> Scheduler:
        from platforms.schedulers.kubernetes.scheduler import KubernetesScheduler

        return KubernetesScheduler(platform)

    def image_key(self, platform: Platform) -> tuple[str, str] | None:
        return "kubernetes", platform.kubernetes.image or "the manifest's own"

    def is_present(self, platform: Platform) -> bool:
        """Whether the kubeconfig has one of the contexts that the platform looks for: a cluster on this machine."""
        if not platform.kubernetes.contexts:
            return False
        from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget, context_of

        return context_of(ClusterTarget.of(platform)) is not None

    def lint_file(self, platform: Platform, file: Path) -> list[str]:
        from platforms.schedulers.kubernetes.manifest import policy, sources

        written = sources.from_file(file)
        found = []
        for violation in policy.violations([dict(source.tree) for source in written], platform):
            found.append((written[violation.number].where(violation.path), violation.message))
        found.sort(key=lambda place_and_mistake: int(place_and_mistake[0].rpartition(":")[2]))
        return [f"{place}: {mistake}" for place, mistake in found]

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        from platforms.schedulers.kubernetes import node_queries
        from platforms.schedulers.kubernetes.api.client import Client
        from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

        return node_queries.nodes_of_platform(Client(ClusterTarget.of(platform)), platform)

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        """`job_id` is ours, or the name of an object that makes pods, or of a pod, in the platform's namespace."""
        from platforms.schedulers.kubernetes import node_queries
        from platforms.schedulers.kubernetes.api.client import Client
        from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
        from platforms.schedulers.kubernetes.job_record import Address

        target = ClusterTarget.of(platform)
        name = job_id
        if "/" in job_id:
            address = Address.parse(job_id)
            name = address.name
            target = ClusterTarget(target.kubeconfig, address.context, (), address.namespace)
        return node_queries.nodes_of_job(Client(target), name)

    def drain_command(self, node: str, reason: str) -> str:
        """Kubernetes keeps no reason of a cordon."""
        return f"kubectl cordon {shlex.quote(node)}"

    def draft(self, request: DraftRequest) -> Sequence[DraftLine]:
        from platforms.schedulers.kubernetes.draft import draft

        return draft.draft(request)

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        from platforms.schedulers.kubernetes.doctor import steps

        return steps.look_at_cluster(visit)

    def doctor_trials(self, visit: Visit) -> Sequence[Step]:
        from platforms.schedulers.kubernetes.doctor import steps

        return steps.try_manifests(visit)

    def platform_for_doctor(self, platform: Platform) -> Platform:
        """Without the archive that lies in the jobs' image: that one cannot report."""
        keys = platform.kubernetes.model_copy(update={"archive": None})
        return platform.model_copy(update={"kubernetes": keys})

    def make_storage(self, platform: Platform) -> Iterator[str]:
        from platforms.schedulers.kubernetes import volume_claims
        from platforms.schedulers.kubernetes.api.client import Client
        from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget

        yield from volume_claims.create_missing(Client(ClusterTarget.of(platform)), platform)

    def leftovers(self, platform: Platform) -> Leftovers:
        from platforms.schedulers.kubernetes.leftovers import NamespaceLeftovers

        return NamespaceLeftovers(platform)
