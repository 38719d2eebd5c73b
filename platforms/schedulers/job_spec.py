"""Makes the JobSpec of a job on a platform: by default a job has what the platform's file says. Checks its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import ONLY, JobSpec, Layout, RefusedError, Trial, job_key, job_name, run_label
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
    """A job that runs its arguments once on each node. Use dataclasses.replace for everything else that it needs.

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
        threads_per_rank=platform.threads_per_rank,
        python=backend.job_python(platform),
        env=platform.env,
        time_limit_s=platform.time_limit_s,
        start_limit_s=platform.start_limit_s,
        run=run_label(run_id),
        trial=trial,
        image=key_and_image[1] if key_and_image else None,
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
