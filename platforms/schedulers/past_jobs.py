"""Where jobs of the past lie and how they are asked, which their platform's file may say otherwise now."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from platforms import transports
from platforms.config import yaml_lines
from platforms.job import BenchError, RefusedError
from platforms.transports import file_transfer

if TYPE_CHECKING:
    from platforms.config.schema import Platform
    from platforms.config.yaml_lines import Document

Place = Mapping[str, object]  # of a job, by the keys of its platform's file; empty in the record of an older session
KEYS = ("scheduler", "transport", "host", "ssh_config", "work_dir")
# A job's id at Kubernetes names its context and namespace, and its manifest the kubeconfig.
KEYS_WITHOUT_ID = tuple(f"kubernetes.{key}" for key in ("kubeconfig", "context", "contexts", "namespace"))


def place(platform: Platform, job_id: str | None) -> Place:
    """Where a job lies that is asked for now, as JSON keeps it; `job_id` is None while it has none."""
    keys = KEYS if job_id else (*KEYS, *KEYS_WITHOUT_ID)
    values = {key: reduce(getattr, key.split("."), platform) for key in keys}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def refuse_moved(platform: Platform, past: Mapping[str, Place]) -> None:
    """Refuse to look for jobs elsewhere than where they began, since one that is not found there counts as ended.

    Through another login node, or by another name of the same folder, the folders of the jobs are found.

    Args:
        past: the places of jobs, by their names.

    Raises:
        RefusedError: with each key that has another value now, and what to put back.
    """
    now = place(platform, None)
    for name, then in past.items():
        changed = [key for key in then if then[key] != now.get(key)]
        if changed and not (then.get("scheduler") == platform.scheduler and _is_found(platform, name)):
            document = yaml_lines.read(platform.source)
            said = "; ".join(_said(document, key, then[key], now.get(key)) for key in changed)
            raise RefusedError(
                f"{said}: job {name} began so, and its log and result lie there: put that back until they are read (a "
                "new run takes what the file says now)"
            )


def _is_found(platform: Platform, name: str) -> bool:
    if platform.work_dir is None:
        return False
    transport = transports.connect(platform)
    try:
        return bool(file_transfer.existing(transport, [f"{platform.work_dir}/jobs/{name}"]))
    except BenchError:  # who does not answer has found nothing
        return False
    finally:
        transport.close()


def _said(document: Document, key: str, then: object, now: object) -> str:
    """`mine.yaml:5: work_dir: is /b now, and was /a (write `work_dir: /a`)`."""
    above, _, last = key.rpartition(".")
    keys = document.value or {}
    group = keys.get(above) if above else keys
    written = group.get(last) if isinstance(group, dict) else None
    was_written = f"{above}: {{{last}: {then}}}" if above else f"{key}: {then}"
    put_back = f"write `{was_written}`" if then else f"remove `{key}:`"
    if "${site." in str(written):
        put_back = f"the file says `{written}`: give that its value again"
    is_now, was = (str(value) if value else "not written" for value in (now, then))
    line = document.lines.at(tuple(key.split(".")))
    return f"{document.path}:{line}: {key}: is {is_now} now, and was {was} ({put_back})"
