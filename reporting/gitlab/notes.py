"""One comment of ours on a merge request: made once, and found again and changed by later pipelines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from platforms.job import AwayError
from reporting.gitlab.api import GitLab, GitLabError

LONGEST = 900_000  # characters; GitLab takes a million
TRIES = 3
_NOT_OURS = (401, 403, 404)


def merge_request_here(environ: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """The project and the number of the merge request of this pipeline, or of its branch; None if it has none."""
    iid = environ.get("CI_MERGE_REQUEST_IID", "")
    if iid.isdigit():
        return environ.get("CI_MERGE_REQUEST_PROJECT_ID") or environ.get("CI_PROJECT_ID", ""), iid
    for reference in environ.get("CI_OPEN_MERGE_REQUESTS", "").split(","):  # as group/site!17
        path, mark, number = reference.strip().partition("!")
        if mark and number.isdigit() and path == environ.get("CI_PROJECT_PATH"):
            return environ.get("CI_PROJECT_ID", ""), number
    return None


def write_once(gitlab: GitLab, iid: str, marker: str, body: str) -> str:
    """Write a comment, in place of the one that begins with the same marker.

    Args:
        iid: the number of the merge request.
        marker: the first line of the comment, which is not shown.
        body: begins with the marker.

    Returns:
        `made`, `changed` or `unchanged`.

    Raises:
        GitLabError, AwayError: as GitLab's requests do.
    """
    notes = f"merge_requests/{int(iid)}/notes"
    body = body[:LONGEST]
    for tries in range(1, TRIES + 1):
        ours = _ours(gitlab, notes, marker)
        for index, note in enumerate(ours):
            if note["body"].strip() == body.strip():
                said = "unchanged"
            elif _changed(gitlab, f"{notes}/{note['id']}", body):
                said = "changed"
            else:
                continue  # another token has written it
            _remove(gitlab, notes, ours[index + 1 :])
            return said
        try:
            gitlab.post(notes, body=body)
        except AwayError:
            if tries == TRIES:
                raise
            continue  # the comment may have been written: look for it
        return "made"
    raise AssertionError


def _ours(gitlab: GitLab, notes: str, marker: str) -> list[dict[str, Any]]:
    every = gitlab.each(notes, sort="asc", order_by="created_at")
    return [note for note in every if not note.get("system") and str(note.get("body", "")).startswith(marker)]


def _changed(gitlab: GitLab, note: str, body: str) -> bool:
    try:
        gitlab.put(note, body=body)
    except GitLabError as error:
        if error.status in _NOT_OURS:
            return False
        raise
    return True


def _remove(gitlab: GitLab, notes: str, later: list[dict[str, Any]]) -> None:
    """Remove what pipelines have written twice at the same moment."""
    for note in later:
        with contextlib.suppress(GitLabError):
            gitlab.delete(f"{notes}/{note['id']}")
