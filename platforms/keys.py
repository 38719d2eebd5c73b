"""The keys of a platform file that belong to one part of it: Slurm, containers, and a site's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from platforms.values import Count, Filled, Flag, Seconds, Text

STRICT = ConfigDict(frozen=True, extra="forbid")
Words = tuple[Text, ...]
OptionReasons = Mapping[Flag, Filled]


class SlurmKeys(BaseModel):
    """What sbatch and srun are told beside nodes, tasks, time and devices, which follow from the layout."""

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
    directives: Words = Field(default=(), description="more #SBATCH options: `[--switches=1]`")
    srun: Words = Field(default=(), description="more options of srun: `[--hint=nomultithread]`")


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
