"""The file that `-o FILE` names is refused before any work if it cannot be one."""

from __future__ import annotations

import shlex
from pathlib import Path

from platforms.job import RefusedError


def refuse_place(output: Path | None, example: str) -> None:
    """Raise RefusedError if no file can be written there. None is the terminal.

    Args:
        example: the name of a file as the command writes it, such as `report.json`.
    """
    if output is None:
        return
    if not output.absolute().parent.is_dir():
        raise RefusedError(f"{output}: its folder does not exist (mkdir -p {shlex.quote(str(output.parent))})")
    if output.is_dir():
        inside = shlex.quote(str(output / example))
        raise RefusedError(f"{output}: this is a folder, and FILE is a file (-o {inside})")
    if output.exists() and not output.is_file():
        raise RefusedError(f"{output}: this is no file, and cannot be replaced by one (-o {example})")
