"""The keys of a platform file below `slurm:`, `container:`, `kubernetes:`, `policy:` and `committed:`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from platforms.config.cluster_values import (
    Amount,
    ClusterName,
    LabelKey,
    Labels,
    LabelValue,
    NodePath,
    PodPath,
    Quantity,
    User,
    times,
)
from platforms.config.sbatch_options import check_site_directive
from platforms.config.values import Count, Filled, Flag, ManifestPath, Seconds, Some, Text, Variable, ZeroOrMore
from platforms.job import Metric
from platforms.printable import printable

STRICT = ConfigDict(
    frozen=True, extra="forbid", defer_build=True
)  # start-up is counted: one build of Platform is enough
Words = tuple[Text, ...]
OptionReasons = Mapping[Flag, Filled]


class Obstacle(BaseModel):
    """Why something cannot run on a platform, and who says so."""

    model_config = STRICT

    reason: Filled = Field(description="why it cannot run there")
    source: Filled | None = Field(default=None, description="who says so: a page, a paper's section, a date")

    def __str__(self) -> str:
        source = "" if self.source is None else f" (source: {self.source})"
        return printable(" ".join(f"{self.reason}{source}".split()))


def _with_reason(value: object) -> object:
    """Take a text alone as the reason. Refuse true and false, which say none."""
    if isinstance(value, bool):
        raise ValueError("needs the reason (write {reason: …, source: …}, or remove the line)")
    return value if isinstance(value, Mapping | Obstacle) else {"reason": value}


ObstacleOrReason = Annotated[Obstacle, BeforeValidator(_with_reason, json_schema_input_type=Text | Obstacle)]


class SlurmKeys(BaseModel):
    """Options of sbatch and srun. Nodes, tasks, time and devices follow from the layout."""

    model_config = STRICT

    account: Filled | None = Field(default=None, description="`--account`")
    partition: Filled | None = Field(default=None, description="`--partition`")
    qos: Filled | None = Field(default=None, description="`--qos`")
    constraint: Filled | None = Field(default=None, description="`--constraint`")
    reservation: Filled | None = Field(default=None, description="`--reservation`")
    exclusive: Annotated[bool, Field(strict=True)] = Field(default=False, description="whole nodes: `--exclusive`")
    mem: Filled | None = Field(default=None, description="`--mem`, memory of a node, as in 64G")
    cpus_per_rank: Count | None = Field(
        default=None, description="CPUs that Slurm gives to each rank; default: threads_per_rank, else Slurm's own"
    )
    gpus: Literal["gres", "gpus-per-node", "gpus-per-task", "gpus"] = Field(
        default="gres", description="how devices other than CPUs are asked for: `--gres=gpu:4`, `--gpus-per-node=4`, …"
    )
    gres: Filled | None = Field(
        default=None, description="name of the device at Slurm, with a type if it needs one: gpu:v100; default: gpu, cs"
    )
    tasks: Literal["sbatch", "srun"] = Field(
        default="sbatch", description="where the numbers of tasks and CPUs stand: in #SBATCH lines, or with srun only"
    )
    directives: tuple[Annotated[Text, AfterValidator(check_site_directive)], ...] = Field(
        default=(), description="more #SBATCH options: `[--switches=1]`; not those that other keys say"
    )
    srun: Words = Field(default=(), description="more options of srun: `[--hint=nomultithread]`")
    vet: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="compare the nodes of a job before its ranks start (docs/vetting.md)"
    )


class ContainerKeys(BaseModel):
    """The container in which each rank runs."""

    model_config = STRICT

    runtime: Literal["apptainer", "pyxis", "podman-hpc", "edf"] = Field(
        description="what starts it; edf: CSCS's container engine, whose image is an environment file"
    )
    image: Filled = Field(description="the image as the runtime names it: a path, registry/name:tag, an EDF")
    mounts: Words = Field(
        default=(), description="folders it sees beside work_dir and data: `/path` or `/path:/inside`"
    )
    options: Words = Field(default=(), description="more options of the runtime")


class TolerationKeys(BaseModel):
    """A toleration of pods, in Kubernetes' own words."""

    model_config = STRICT

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: ZeroOrMore | None = Field(default=None, alias="tolerationSeconds")

    def content(self) -> dict[str, object]:
        """As it stands in a manifest."""
        return self.model_dump(exclude_unset=True, by_alias=True)


class VolumeKeys(BaseModel):
    """A folder that the pods see, and what is behind it: exactly one of pvc, host_path, memory and scratch."""

    model_config = STRICT

    mount: PodPath = Field(description="where the pods see it")
    pvc: ClusterName | None = Field(default=None, description="a PersistentVolumeClaim")
    size: Amount | None = Field(default=None, description="with pvc: `prepare` makes the claim when there is none")
    storage_class: ClusterName | None = Field(
        default=None, description="with size: of the claim; default: the cluster's"
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"] = Field(
        default="ReadWriteMany", description="with size: of the claim"
    )
    host_path: NodePath | None = Field(default=None, description="a folder of the node")
    memory: Amount | None = Field(default=None, description="a file system in memory, at most this large")
    scratch: Amount | None = Field(
        default=None, description="a folder on the node that goes with the pod, at most this"
    )
    read_only: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="the pods cannot write it, and `prepare` cannot fill it"
    )

    @model_validator(mode="after")
    def _one_source(self) -> VolumeKeys:
        sources = [name for name in ("pvc", "host_path", "memory", "scratch") if getattr(self, name) is not None]
        if len(sources) != 1:
            raise ValueError("needs exactly one of pvc, host_path, memory and scratch")
        if self.size is not None and self.pvc is None:
            raise ValueError("size belongs to pvc (memory and scratch are sizes themselves)")
        return self


class KubernetesKeys(BaseModel):
    """The cluster, and what the manifest contains beside what follows from the layout."""

    model_config = STRICT

    kubeconfig: Filled | None = Field(
        default=None, description="the file; default: $KUBECONFIG, else ~/.kube/config, else the pod's own account"
    )
    context: Filled | None = Field(default=None, description="the context in it; default: its current one")
    contexts: tuple[Filled, ...] = Field(
        default=(),
        description="patterns, as in kind-*: the current context is taken if it matches, else the first that does, and "
        "where there is one the platform needs not be enabled",
    )
    namespace: ClusterName | None = Field(default=None, description="default: the context's own, else `default`")
    kind: Literal["job", "pod", "indexed_job", "ipujob"] | None = Field(
        default=None, description="which of k8s_templates/; default: job, on several nodes indexed_job"
    )
    manifest: Filled | None = Field(default=None, description="the site's own manifest instead, beside this file")
    image: Filled | None = Field(default=None, description="the container's image, best with its digest: name@sha256:…")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="when the image is pulled; default: the cluster's, Always for the tag latest"
    )
    image_pull_secrets: tuple[ClusterName, ...] = Field(default=(), description="names of Secrets")
    archive: PodPath | None = Field(
        default=None, description="where models-….pyz lies in the image; default: a ConfigMap brings it"
    )
    queue: ClusterName | None = Field(
        default=None, description="Kueue's LocalQueue, as the label kueue.x-k8s.io/queue-name"
    )
    generate_name: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="write metadata.generateName beside the name, where a site demands it"
    )
    service_account: ClusterName | None = Field(default=None, description="of the pods, without its token")
    priority_class: ClusterName | None = Field(default=None, description="of the pods")
    resource: LabelKey | None = Field(
        default=None, description="what a device is called there; default: nvidia.com/gpu, graphcore.ai/ipu"
    )
    cpu: Amount | None = Field(default=None, description="CPUs of a pod, requested and limited")
    cpu_per_device: Amount | None = Field(default=None, description="the same for each device of the pod, instead")
    memory: Amount | None = Field(default=None, description="memory of a pod, requested and limited, as in 64Gi")
    memory_per_device: Amount | None = Field(default=None, description="the same for each device, instead")
    shm: Amount | None = Field(default=None, description="size of /dev/shm, which is 64 MB otherwise")
    shm_per_device: Amount | None = Field(default=None, description="the same for each device, instead")
    node_selector: Mapping[LabelKey, LabelValue] = Field(default={}, description="labels that the nodes must have")
    tolerations: tuple[TolerationKeys, ...] = Field(default=(), description="as in a pod")
    volumes: tuple[VolumeKeys, ...] = Field(default=(), description="folders that the pods see, data sets above all")
    labels: Labels = Field(default={}, description="more labels of every object")
    annotations: Mapping[LabelKey, Text] = Field(default={}, description="more annotations of every object")
    user: User = Field(
        default=1000, description="user and group id of the containers; 0 is root, which many clusters refuse"
    )
    keep_s: Seconds = Field(
        default=604800.0,
        alias="keep",
        description="how long the cluster keeps a job that has ended, unless it is deleted before",
        json_schema_extra={"default": "7-00:00:00"},
    )
    pod_start_limit_s: Seconds = Field(
        default=1200.0,
        alias="pod_start_limit",
        description="how long pods may take to start once they are admitted: pulling images, mounting volumes",
        json_schema_extra={"default": "20m"},
    )

    log_rotates_at: Amount = Field(
        default="1Mi",
        description="containerLogMaxSize of the nodes; the default is less than that of any cluster",
    )

    @model_validator(mode="after")
    def _one_context(self) -> KubernetesKeys:
        if self.context is not None and self.contexts:
            raise ValueError("needs context or contexts, not both")
        return self

    @model_validator(mode="after")
    def _one_amount(self) -> KubernetesKeys:
        for name in ("cpu", "memory", "shm"):
            if getattr(self, name) is not None and getattr(self, f"{name}_per_device") is not None:
                raise ValueError(f"needs {name} or {name}_per_device, not both")
        return self

    def share(self, name: Literal["cpu", "memory", "shm"], devices: int) -> str | None:
        """Return how much of it a pod with this many devices gets."""
        per_device = getattr(self, f"{name}_per_device")
        if per_device is not None:
            return times(per_device, devices)
        whole: str | None = getattr(self, name)
        return whole


class StackKeys(BaseModel):
    """What one stack has in place of the platform's own; `env` is added to it."""

    model_config = STRICT

    image: Filled | None = Field(default=None, description="the image of the container or of the pods")
    modules: tuple[Filled, ...] = Field(default=(), description="environment modules that a job loads")
    python: Filled = Field(default="auto", description="the job's Python")
    setup: Words = Field(default=(), description="shell lines of a job before the ranks start")
    env: Mapping[Variable, Text] = Field(default={}, description="environment variables, added to the platform's")
    arguments: Words = Field(default=(), description="words added to the command line of the job")
    code: Filled | None = Field(default=None, description="commit of the suite whose models/ jobs run, as --code")


_COMMITTED = re.compile(r"at (least|most) (\d+(?:\.\d+)?(?:e[+-]?\d+)?) (\S.*)")


def _committed_value(value: object) -> object:
    """Read `at least 1500 GFLOP/s`."""
    found = _COMMITTED.fullmatch(value) if isinstance(value, str) else None
    if found is None or not float(found[2]):
        raise ValueError("is no committed value (write at least 1500 GFLOP/s, or at most 5 us)")
    return Metric(float(found[2]), found[3], "higher" if found[1] == "least" else "lower")


class CommittedKeys(BaseModel):
    """What a contract promises of one metric of one test."""

    model_config = STRICT

    test: Filled = Field(description="its id, as in catalogue/test_hpl.py::test_hpl[mine-1x4gpu]")
    metric: Filled = Field(description="its name, as the test records it")
    value: Annotated[
        Metric, BeforeValidator(_committed_value), WithJsonSchema({"type": "string", "pattern": _COMMITTED.pattern})
    ] = Field(description="as in `at least 1500 GFLOP/s` or `at most 5 us`")
    source: Filled = Field(description="the clause of the contract")
    runs: Count = Field(default=3, description="so many runs in a row must meet it")


class PolicyKeys(BaseModel):
    """A site's rules, checked before anything is submitted."""

    model_config = STRICT

    required: OptionReasons = Field(default={}, description="option of sbatch: why there must be one: `{--account: …}`")
    forbidden: OptionReasons = Field(default={}, description="option of sbatch: why there must be none: `{--mem: …}`")
    max_nodes: Count | None = Field(default=None, description="largest number of nodes of a job")
    max_time_s: Seconds | None = Field(
        default=None, alias="max_time", description="longest time limit of a job", json_schema_extra={"default": None}
    )
    max_running: Count | None = Field(default=None, description="largest `max_running:` that the site allows one user")
    kinds: Mapping[Text, Filled] = Field(
        default={},
        description="the only kinds of objects that may run pods, as Kubernetes calls them, and why: {Job: …}",
    )
    manifest: Mapping[ManifestPath, Filled] = Field(
        default={},
        description="what must stand in a manifest, and why: {spec.template.spec.nodeSelector: …}; "
        "`pod.` begins in every pod template, `container.` in every container of one",
    )
    one_of: Mapping[ManifestPath, Annotated[tuple[Text, ...], Some]] = Field(
        default={}, description="the only values of something in a manifest, where it stands: {spec.queue: [a, b]}"
    )
    most: Mapping[Text, Quantity] = Field(
        default={}, description="largest amount of a resource of one pod: {cpu: 192, nvidia.com/gpu: 8}"
    )
    avoid: Mapping[Filled, Filled] = Field(
        default={}, description="texts that should stand nowhere in a manifest, and why: {csi-rbd-sc: …}"
    )

    @model_validator(mode="before")
    @classmethod
    def _sense_is_gone(cls, keys: object) -> object:
        if isinstance(keys, Mapping) and "sense" in keys:
            raise ValueError(
                "`sense:` is gone (remove it; under `manifest:` write what must stand in a manifest and why, as in "
                "`pod.spec.securityContext: nothing here needs root`)"
            )
        return keys
