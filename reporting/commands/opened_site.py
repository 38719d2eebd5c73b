"""What commands open before they read or answer: the site's folder, its settings, its history."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from platforms import checkout
from platforms.config import schema
from platforms.config.schema import Site


@dataclass(frozen=True)
class OpenedSite:
    """A site's folder, what its site.yaml says, and the folder of its history, which need not exist."""

    folder: Path
    settings: Site
    history: Path


def add_history(parser: argparse.ArgumentParser) -> None:
    """Declare `--history`, which `open_site` reads."""
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="where the history lies (default: `history:` in site.yaml, else SITE/history)",
    )


def open_site(options: argparse.Namespace) -> OpenedSite:
    """Open what `--site` and `--history` name.

    Raises RefusedError for a folder that does not exist, and ConfigError for mistakes in site.yaml.
    """
    folder = checkout.site_folder(options.site)
    settings = schema.load_site(folder)
    history = Path(options.history) if options.history else folder / "history"
    return OpenedSite(folder, settings, history)
