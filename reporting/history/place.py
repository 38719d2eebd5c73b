"""Where the history lies."""

from __future__ import annotations

from pathlib import Path

from platforms.config.schema import Site


def history_folder(typed: str | None, site: Site, site_folder: Path) -> Path:
    """The folder of the history, which need not exist.

    Args:
        typed: the value of `--history`. It has priority over `history:` in site.yaml, which is relative to the site's
            folder. The default is `history` in that folder.
    """
    if typed is not None:
        return Path(typed).expanduser()
    return site_folder / Path(site.history or "history").expanduser()
