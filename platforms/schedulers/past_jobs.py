"""Whether jobs of the past lie where their platform's file says now: a person may have edited it since they began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from platforms import transports
from platforms.config import yaml_lines
from platforms.config.yaml_lines import Document
from platforms.job import BenchError, RefusedError
from platforms.schedulers import backend_of
from platforms.transports import file_transfer

if TYPE_CHECKING:
    from platforms.config.schema import Platform

Place = Mapping[str, object]  # of a job: `Backend.place`, as its record has it; empty in an older record


def refuse_moved(platform: Platform, past: Mapping[str, Place]) -> None:
    """Refuse to look for jobs elsewhere than where they began, since one that is not found there counts as ended.

    Through another login node, or by another name of the same folder, the folders of the jobs are found.

    Args:
        past: the places of jobs, by their names.

    Raises:
        RefusedError: with each key that has another value now, and what to put back.
    """
    now = backend_of(platform).place(platform, None)
    for name, place in past.items():
        changed = [key for key, then in place.items() if now.get(key) != then]
        if changed and not _is_found(platform, place, name):
            document = yaml_lines.read(platform.source)
            said = "; ".join(_said(document, key, place[key], now.get(key)) for key in changed)
            raise RefusedError(
                f"{said}: job {name} began so, and its log and result lie there: put that back until they are read (a "
                "new run takes what the file says now)"
            )


def _is_found(platform: Platform, place: Place, name: str) -> bool:
    if platform.work_dir is None or place.get("scheduler") != platform.scheduler:
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
    loc = tuple(key.split("."))
    written: object = document.value
    for part in loc:
        written = written.get(part) if isinstance(written, dict) else None
    line = f"{loc[-1]}: {then}" if loc[:-1] == () else f"{loc[0]}: {{{loc[-1]}: {then}}}"
    put_back = f"remove `{key}:`" if then is None else f"write `{line}`"
    if "${site." in str(written):
        put_back = f"the file says `{written}`: give that its value again"
    told = ["not written" if value is None else str(value) for value in (now, then)]
    return f"{document.path}:{document.lines.at(loc)}: {key}: is {told[0]} now, and was {told[1]} ({put_back})"
