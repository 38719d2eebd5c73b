"""Makes the JobSpec of a job on a platform: by default a job has what the platform's file says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from platforms.job import JobSpec, Layout, job_name, run_label
from platforms.schedulers import backend_of

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def new_spec(
    platform: Platform, *, label: str, test: str, layout: Layout, run_id: str, arguments: Sequence[str] = ()
) -> JobSpec:
    """A job that runs its arguments once on each node. Use dataclasses.replace for everything else that it needs.

    Args:
        label: what its name begins with; with the layout, `run_id` and `test` that makes the name.
        arguments: the whole command line, or what follows the code archive if the job gets one.
    """
    backend = backend_of(platform)
    key_and_image = backend.image_key(platform)
    return JobSpec(
        name=job_name(label, layout, run_id, test),
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
        image=key_and_image[1] if key_and_image else None,
    )


def choose_launcher(launcher: str, ranks: int) -> str:
    """Replace the launcher `auto`: torchrun if there are several ranks, else none."""
    if launcher != "auto":
        return launcher
    return "torchrun" if ranks > 1 else "none"
