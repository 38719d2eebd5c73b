"""Makes the JobSpec of a job on a platform: by default a job has what the platform's file says. Checks its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import DEVICE_UNITS, ONLY, JobSpec, Layout, RefusedError, Trial, job_key, job_name, run_label
from platforms.schedulers import backend_of

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def new_spec(
    platform: Platform,
    *,
    label: str,
    test: str,
    layout: Layout,
    run_id: str,
    arguments: Sequence[str] = (),
    trial: Trial = ONLY,
) -> JobSpec:
    """A job that starts the layout's ranks. Use dataclasses.replace for everything else that it needs.

    Args:
        label: what its name begins with; with the layout, `run_id`, `test` and `trial` that makes the name.
        arguments: the whole command line, or what follows the code archive if the job gets one.
    """
    backend = backend_of(platform)
    key_and_image = backend.image_key(platform)
    return JobSpec(
        name=job_name(label, layout, run_id, job_key(test, trial.key)),
        test=test,
        platform=platform.name,
        layout=layout,
        arguments=tuple(arguments),
        ranks_per_device=platform.ranks_per_device,
        devices_per_replica=platform.devices_per_replica,
        replicas_per_rank=platform.replicas_per_rank,
        threads_per_rank=platform.threads_per_rank,
        python=backend.job_python(platform),
        env=platform.env,
        time_limit_s=platform.time_limit_s,
        start_limit_s=platform.start_limit_s,
        grace_s=platform.grace_s,
        run=run_label(run_id),
        trial=trial,
        image=key_and_image[1] if key_and_image else None,
    )


def one_process_spec(
    platform: Platform, *, label: str, test: str, run_id: str, arguments: Sequence[str] = ()
) -> JobSpec:
    """A job of one process on one device, whatever a rank of the platform drives: it trains nothing."""
    alone = {"ranks_per_device": 1, "devices_per_replica": 1, "replicas_per_rank": 1}
    layout = Layout(1, 1, platform.unit)
    platform = platform.model_copy(update=alone)
    return new_spec(platform, label=label, test=test, layout=layout, run_id=run_id, arguments=arguments)


def check_replicas(spec: JobSpec, platform: Platform) -> None:
    """Raise RefusedError where the devices of a node are no whole number of ranks, or the device has no replicas."""
    unit = spec.layout.unit
    abilities = DEVICE_UNITS[unit]
    if abilities.driven_together and spec.ranks_per_device != 1:
        raise RefusedError(
            f"{platform.name}: no two ranks share one {unit}, and `ranks_per_device: {spec.ranks_per_device}` asks for "
            f"that: remove `ranks_per_device:` from {platform.source}"
        )
    if spec.replicas_per_rank > 1 and not abilities.driven_together:
        raise RefusedError(
            f"{platform.name}: replicas_per_rank: is for {_units('driven_together')}, and layout {spec.layout} has one "
            f"rank for each {unit}: remove it from {platform.source}"
        )
    if spec.devices_per_replica > 1 and not abilities.spreads:
        raise RefusedError(
            f"{platform.name}: devices_per_replica: is for {_units('spreads')}, and each {unit} holds a whole copy of "
            f"the model: remove it from {platform.source}"
        )
    devices_per_rank = spec.devices_per_replica * spec.replicas_per_rank
    if spec.layout.devices_per_node % devices_per_rank:
        raise RefusedError(
            f"{platform.name}: layout {spec.layout} has {spec.layout.devices_per_node} {unit} a node, and a rank "
            f"drives {devices_per_rank} of them (devices_per_replica: {spec.devices_per_replica}, replicas_per_rank: "
            f"{spec.replicas_per_rank}): choose a layout with a multiple, or change them in {platform.source}"
        )


def _units(ability: str) -> str:
    """The units of layouts that have an ability of DeviceUnit."""
    return " and ".join(name for name, unit in DEVICE_UNITS.items() if getattr(unit, ability))


def launcher_place(spec: JobSpec, platform: Platform) -> str:
    """Where a job's launcher is written: in the platform's file, or in the mark of a test with a command of its own."""
    if spec.archive is None and spec.launcher != platform.launcher:
        return "`launcher=` in the test's mark, or run the test on another platform (-m NAME)"
    return f"`launcher:` in {platform.source}"


def check_launcher(spec: JobSpec, platform: Platform, several: str = "`launcher: torchrun`") -> None:
    """Raise RefusedError where the launcher does not start the ranks of a benchmark's job, or they could not train.

    Args:
        several: what a user of this scheduler writes for several ranks.
    """
    if spec.archive is None or spec.ranks <= 1:
        return
    launcher = choose_launcher(spec.launcher, spec.ranks)
    unit = spec.layout.unit
    if unit == "csx":
        why = f"one process drives all CS systems, and {spec.layout} would have {spec.ranks}"
    elif unit == "ipu" and launcher != "poprun":
        why = f"IPUs of several processes train together under poprun only, and {spec.layout} would have {spec.ranks}"
    elif launcher == "none":
        raise RefusedError(
            f"{platform.name}: launcher none starts one rank, and {spec.layout} has {spec.ranks}: write {several} in "
            f"{platform.source}"
        )
    else:
        return
    one_node = "" if spec.layout.nodes == 1 else f"choose the layout 1x{spec.layout.devices}, and "
    raise RefusedError(
        f"{platform.name}: {why}: {one_node}write `replicas_per_rank: {spec.replicas}` in {platform.source}"
    )


def check_nodes(spec: JobSpec, *, reservations: str | None = None) -> None:
    """Check the nodes and the reservation that a job asks for, where it is rendered.

    Args:
        spec: the job.
        reservations: why there are none, a sentence's end; None if the scheduler has them.

    Raises:
        RefusedError: they are not as many nodes as the layout has, or there are no reservations.
    """
    asked = len(set(spec.nodes))
    if spec.nodes and asked != spec.layout.nodes:
        raise RefusedError(
            f"{spec.platform}: layout {spec.layout} has {_count(spec.layout.nodes)}, and the job asks for "
            f"{_count(asked)} ({', '.join(spec.nodes)}): name exactly as many, or choose a layout of {_count(asked)}"
        )
    if spec.reservation is not None and reservations is not None:
        raise RefusedError(
            f"{spec.platform}: the job asks for the reservation {spec.reservation}, and {reservations}: leave it out"
        )


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def choose_launcher(launcher: str, ranks: int) -> str:
    """Replace the launcher `auto`: torchrun if there are several ranks, else none."""
    if launcher != "auto":
        return launcher
    return "torchrun" if ranks > 1 else "none"
