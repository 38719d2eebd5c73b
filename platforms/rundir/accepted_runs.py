"""Which runs stay because people have accepted their numbers: the files in SITE/references name them.

reporting/references writes these files. Here they are searched as text, so that a run stays even if its file was edited
and cannot be understood.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platforms.job import RefusedError

FOLDER = "references"  # below the site's folder


@dataclass(frozen=True)
class AcceptedRuns:
    """The text of every answer of a site, by its file."""

    answers: Mapping[Path, str] = field(default_factory=dict)

    def why_kept(self, run_id: str) -> str:
        """Which answer needs the run; empty when none does."""
        quoted = json.dumps(run_id, ensure_ascii=False)
        for path, text in self.answers.items():
            if quoted in text:
                return f"accepted in {path}"
        return ""


def read_accepted_runs(site: Path) -> AcceptedRuns:
    """Read the answers of a site.

    Raises RefusedError where one cannot be read, since it may name any run.
    """
    answers = {path: content.decode(errors="replace") for path, content in read_files(site / FOLDER)}
    return AcceptedRuns(answers)


def read_files(folder: Path, wanted: Callable[[str], bool] = bool) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder whose name is wanted, with its content; none if the folder does not exist.

    Raises RefusedError where something cannot be read, since it may name any run.
    """
    try:
        for name, _folders, files in os.walk(folder, onerror=_raise, followlinks=True):
            for file in sorted(filter(wanted, files)):
                path = Path(name, file)
                yield path, path.read_bytes()
    except OSError as error:
        raise unreadable(str(error.filename), str(error.strerror)) from None


def unreadable(where: str, why: str) -> RefusedError:
    """The error of something that may name runs which must stay."""
    return RefusedError(f"{where}: cannot be read: {why} (it may name runs that must stay)")


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
