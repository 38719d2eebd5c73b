"""Where the history lies."""

from __future__ import annotations

import shlex
from pathlib import Path

from platforms.checkout import is_same
from platforms.config import yaml_lines
from platforms.config.schema import Site
from platforms.job import RefusedError

DEFAULT = "history"  # in the site's folder


def history_folder(typed: str | None, site: Site, site_folder: Path) -> Path:
    """The folder of the history, which need not exist.

    Args:
        typed: the value of `--history`. It has priority over `history:` in site.yaml, which is relative to the site's
            folder. The default is `history` in that folder.
    """
    if typed is not None:
        return Path(typed).expanduser()
    return site_folder / Path(site.history or DEFAULT).expanduser()


def refuse_missing(folder: Path, typed: str | None, site_folder: Path) -> None:
    """Raise RefusedError for a folder of `--history` or site.yaml that does not exist.

    It may lie on a file system that is not mounted. A new history in its place would compare with nothing. The default
    folder need not exist, because the first session makes it.
    """
    if folder.exists() or is_same(folder, site_folder / DEFAULT):
        return
    where = "--history"
    if typed is None:
        file = site_folder / "site.yaml"
        where = f"{file}:{yaml_lines.read(file).lines.at(('history',))}: history"
    raise RefusedError(
        f"{where}: there is no folder {folder}: is its file system mounted? "
        f"If the history is to begin there: mkdir -p {shlex.quote(str(folder))}"
    )
