"""The ranks in a container: what goes before their command line, and what srun is told, for each runtime."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from platforms.config.keys import ContainerKeys
from platforms.job import JobSpec

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def needs_srun(box: ContainerKeys) -> bool:
    """Whether srun itself starts the container, so that even one rank is a step."""
    return box.runtime in ("pyxis", "edf")


def prefix(box: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """The words that start a container around the words that follow.

    apptainer passes the environment on by itself; podman-hpc is told to.
    """
    mounts = _mounts(box, platform, spec)
    if box.runtime == "apptainer":
        return ["apptainer", "exec", *(f"--bind={mount}" for mount in mounts), *box.options, box.image]
    if box.runtime == "podman-hpc":
        volumes = [f"--volume={mount if ':' in mount else f'{mount}:{mount}'}" for mount in mounts]
        work = f"--workdir={platform.work_dir}/jobs/{spec.name}/work"
        host = [
            "--env-host",
            "--network=host",
            "--ipc=host",
        ]  # ranks of one node meet in shared memory and by its network
        return ["podman-hpc", "run", "--rm", *host, *volumes, work, *box.options, box.image]
    return []


def srun_options(box: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """What srun is told where its own plugin starts the container."""
    if box.runtime == "pyxis":
        mounts = [mount if ":" in mount else f"{mount}:{mount}" for mount in _mounts(box, platform, spec)]
        work = f"--container-workdir={platform.work_dir}/jobs/{spec.name}/work"
        return [f"--container-image={box.image}", f"--container-mounts={','.join(mounts)}", work, *box.options]
    if box.runtime == "edf":  # its mounts stand in the environment file
        return [f"--environment={box.image}", *box.options]
    return []


def _mounts(box: ContainerKeys, platform: Platform, spec: JobSpec) -> list[str]:
    """The job's own folders at the paths that they have outside, then what the platform names."""
    own = [str(platform.work_dir)]
    if spec.data_dir and PurePosixPath(str(platform.work_dir)) not in PurePosixPath(spec.data_dir).parents:
        own.append(spec.data_dir)
    return list(dict.fromkeys([*own, *box.mounts]))
