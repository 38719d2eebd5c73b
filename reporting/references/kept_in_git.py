"""Whether git keeps a site's answers, so that messages name commands that work."""

from __future__ import annotations

import subprocess
from pathlib import Path

GIT_S = 10.0


def can_be_committed(path: Path) -> bool:
    """Whether a file lies in a clone that does not ignore it."""
    status = _git(path.parent, "status", "--porcelain", "--untracked-files=all", "--", path.name)
    return bool(status)


def _git(folder: Path, *words: str) -> str:
    """What git prints; nothing where it fails, or is not installed."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
