"""What commands open before they read or answer: the site's folder, its settings, its history, its answers."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from platforms import checkout
from platforms.config import schema
from platforms.config.schema import Site
from reporting.history import reader
from reporting.history.envelope import Envelope
from reporting.history.index import Answer
from reporting.history.measured import JobNumbers
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
        """Everything that people have answered. The caller prints its `problems`."""
        return store.of_site(self.folder, self.settings, self.history)

    def read(
        self, tests: Collection[str] | None = None, problems: list[str] | None = None, *, visits: bool = True
    ) -> list[Envelope]:
        """The runs of this site; other sites may share its history. The arguments are those of `reader.read`."""
        runs = reader.read(self.history, tests, problems, visits=visits)
        return [run for run in runs if run.key.site == self.settings.name]

    def measured(
        self,
        use: Callable[[Iterable[JobNumbers]], Answer],
        problems: list[str],
        *,
        is_wanted: Callable[[Envelope], bool] = lambda _: True,
        before_s: float = math.inf,
    ) -> Answer:
        """Make something of what the jobs of this site have measured. The arguments are those of `reader.measured`."""
        of_site = self.history, self.settings.name
        return reader.measured(*of_site, use, problems, is_wanted=is_wanted, before_s=before_s)

    def why_empty(self) -> str:
        """Why `read` finds no run at all, and what to do."""
        problems: list[str] = []
        others = sorted(reader.sites(self.history, problems) - {self.settings.name})
        if problems:
            return f"no run of the site {self.settings.name} can be read: {'; '.join(problems)}"
        if not others:
            why = "" if self.history.is_dir() else ", since there is no such folder"
            return (
                f"{self.history}: the history is empty{why}; pytest writes a line into it for each test with a job "
                "(--history and --site name other ones)"
            )
        return (
            f"{self.history}: the history has no run of the site {self.settings.name}, only those of "
            f"{' and '.join(others)}; `name:` in {self.folder / 'site.yaml'} says which site this is"
        )


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
