"""What commands open before they read or answer: the site's folder, its settings, its history, its answers."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from pathlib import Path

from platforms import checkout
from platforms.config import schema
from platforms.config.schema import Site
from reporting.history.place import history_folder
from reporting.references import store
from reporting.references.answers import References


@dataclass(frozen=True)
class OpenedSite:
    """A site, as the options of a command name it.

    Attributes:
        folder: of the site.
        settings: what its site.yaml says.
        history: the folder of its history, which need not exist.
        options: `--site=DIR` and `--history=DIR`, as far as they must be typed in the next command, too.
    """

    folder: Path
    settings: Site
    history: Path
    options: str

    def references(self) -> References:
        """Everything that people have answered. Its `problems` are for whoever typed the command."""
        return store.load(self.folder)


def add_history(parser: argparse.ArgumentParser) -> None:
    """Declare `--history`, which `open_site` reads."""
    parser.add_argument(
        "--history",
        metavar="DIR",
        help="where the history lies (default: `history:` in site.yaml, else SITE/history)",
    )


def open_site(options: argparse.Namespace) -> OpenedSite:
    """Open what `--site` and `--history` name.

    Raises RefusedError for a site's folder that does not exist, and ConfigError for mistakes in site.yaml.
    """
    folder = checkout.site_folder(options.site)
    settings = schema.load_site(folder)
    typed = getattr(options, "history", None)
    again = checkout.site_option(folder)
    if typed is not None:
        again += f" --history={shlex.quote(typed)}"
    return OpenedSite(folder, settings, history_folder(typed, settings, folder), again.strip())
