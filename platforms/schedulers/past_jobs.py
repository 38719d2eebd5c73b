"""Where jobs of the past lie and how they are asked, which their platform's file may say otherwise now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def refuse_moved(platform: Platform, places: Mapping[str, Place]) -> None:
    """Refuse to look for jobs elsewhere than where they began, since one that is not found there counts as ended.

    Through another login node, or by another name of the same folder, their folders are found: asked once for all.

    Args:
        places: of jobs of this platform, by their names.

    Raises:
        RefusedError: for the first such job, with each key that has another value now, and the one to put back.
    """
    now = place(platform, None)
    changed = {name: [key for key in then if then[key] != now.get(key)] for name, then in places.items()}
    found = _found(platform, [name for name in changed if changed[name]])
    for name, keys in changed.items():
        then = places[name]
        if not keys or (name in found and then.get("scheduler") == platform.scheduler):
            continue
        lines = yaml_lines.read(platform.source).lines
        said = [
            f"{platform.source}:{lines.at(tuple(key.split('.')))}: {key}: is {now.get(key) or 'not written'} now, and "
            f"was {then[key] or 'not written'}"
            for key in keys
        ]
        raise RefusedError(
            f"{'; '.join(said)}: job {name} began so, and its log and result lie there: put that back, there or where "
            "site.yaml has its value, until they are read (a new run takes what the file says now)"
        )


def _found(platform: Platform, names: Iterable[str]) -> set[str]:
    """Those of some jobs whose folders are where the platform's file says now."""
    paths = {f"{platform.work_dir}/jobs/{name}": name for name in names}
    if not paths or platform.work_dir is None:
        return set()
    try:
        with closing(transports.connect(platform)) as transport:
            return {paths[path] for path in file_transfer.existing(transport, list(paths))}
    except BenchError:  # who does not answer has found nothing
        return set()
