"""Where jobs of the past lie and how they are asked, which their platform's file may say otherwise now."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from operator import attrgetter
from typing import TYPE_CHECKING

from platforms import transports
from platforms.config import yaml_lines
from platforms.job import BenchError, RefusedError
from platforms.transports import file_transfer

if TYPE_CHECKING:
    from platforms.config.schema import Platform

Place = Mapping[str, object]  # of a job, by the keys of its platform's file; empty in the record of an older session
KEYS = ("scheduler", "transport", "host", "ssh_config", "work_dir")
# A job's id at Kubernetes names its context and namespace, and its manifest the kubeconfig.
KEYS_WITHOUT_ID = tuple(f"kubernetes.{key}" for key in ("kubeconfig", "context", "contexts", "namespace"))


def place(platform: Platform, job_id: str | None) -> Place:
    """Where a job lies that is asked for now, as JSON keeps it; `job_id` is None while it has none."""
    keys = KEYS if job_id else (*KEYS, *KEYS_WITHOUT_ID)
    values = {key: attrgetter(key)(platform) for key in keys}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def refuse_moved(platform: Platform, name: str, then: Place) -> None:
    """Refuse to look for a job elsewhere than where it began, since one that is not found there counts as ended.

    Through another login node, or by another name of the same folder, its folder is found.

    Raises:
        RefusedError: with each key that has another value now, and the one to put back.
    """
    now = place(platform, None)
    changed = [key for key in then if then[key] != now.get(key)]
    if not changed or (then.get("scheduler") == platform.scheduler and _is_found(platform, name)):
        return
    lines = yaml_lines.read(platform.source).lines
    said = [
        f"{platform.source}:{lines.at(tuple(key.split('.')))}: {key}: is {now.get(key) or 'not written'} now, and was "
        f"{then[key] or 'not written'}"
        for key in changed
    ]
    raise RefusedError(
        f"{'; '.join(said)}: job {name} began so, and its log and result lie there: put that back, there or where "
        "site.yaml has its value, until they are read (a new run takes what the file says now)"
    )


def _is_found(platform: Platform, name: str) -> bool:
    if platform.work_dir is None:
        return False
    try:
        with closing(transports.connect(platform)) as transport:
            return bool(file_transfer.existing(transport, [f"{platform.work_dir}/jobs/{name}"]))
    except BenchError:  # who does not answer has found nothing
        return False
