"""Which runs stay because people have accepted their numbers: the files in SITE/references name them.

reporting/references writes these files. Here they are searched as text, so that a run stays even if its file was edited
and cannot be understood.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
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
    """Read the answers of a site. Raises RefusedError where one cannot be read, since it may name any run."""

    def unreadable(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise RefusedError(
                f"{error.filename}: cannot be read: {error.strerror} (it may name runs that must stay)"
            ) from None

    answers: dict[Path, str] = {}
    for name, _folders, files in os.walk(site / FOLDER, onerror=unreadable):
        for path in (Path(name, file) for file in sorted(files)):
            try:
                answers[path] = path.read_text(encoding="utf-8", errors="replace")
            except OSError as error:
                unreadable(error)
    return AcceptedRuns(answers)
