"""`--report FILE`: at the end of a session the page of the site's whole history is written, whatever the tests said.

The file is tried before anything is submitted. What makes the page is imported at the end.
"""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import output_paths
from platforms.job import RefusedError

SUFFIXES = (".html", ".htm")

if TYPE_CHECKING:
    from harness.inputs import Inputs
    from harness.running import Running


class ReportPage:
    """The page of a session that runs tests.

    Raises UsageError for a file that cannot be written, so that it is known before anything is submitted.

    Attributes:
        line: what has become of it; "" before it is written.
    """

    def __init__(self, path: Path) -> None:
        _refuse_unwritable(path)
        self.line = ""
        self._path = path

    def write(self, inputs: Inputs, running: Running | None) -> None:
        """Write the page, and say what it says, or why it is not there. That changes no outcome."""
        history = inputs.history
        if running is not None:
            history = running.entries.folder
        typed = inputs.typed_for_commands(history)
        try:
            self.line = f"report: {self._path} ({_written(self._path, inputs, history, typed)})"
            return
        except KeyboardInterrupt:
            why = "it was interrupted"
        except OSError as error:
            why = error.strerror or str(error)
        except Exception as error:  # whatever is wrong with a page: the session has measured, and that counts
            why = str(error) or type(error).__name__
        again = f"python -m reporting html -o {shlex.quote(str(self._path))} {typed}".rstrip()
        self.line = f"report: {self._path} is not written: {why} ({again} makes it)"


def _refuse_unwritable(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        make = f"mkdir -p {shlex.quote(str(folder))}"
        raise pytest.UsageError(f"--report: there is no folder {folder}, so nothing was submitted ({make} makes it)")
    if path.is_dir():
        inside = shlex.quote(str(path / "report.html"))
        raise pytest.UsageError(
            f"--report: {path} is a folder, and the page is one file, so nothing was submitted (--report={inside})"
        )
    if path.suffix.lower() not in SUFFIXES:
        page = shlex.quote(str(path.with_suffix(SUFFIXES[0])))
        raise pytest.UsageError(
            f"--report: {path}: the name of a page ends with .html, so nothing was submitted (--report={page})"
        )
    output_paths.try_file(path, "--report")


def _written(path: Path, inputs: Inputs, history: Path, typed: str) -> str:
    """Write the page. Returns its headline."""
    from reporting.commands.html import write_page
    from reporting.history import reader
    from reporting.history.endings import endings_in
    from reporting.references import store
    from reporting.report.build import build
    from reporting.report.totals import totals_of

    site = inputs.site
    problems: list[str] = []
    envelopes = [run for run in reader.read(history, None, problems, visits=False) if run.key.site == site.name]
    if not envelopes:
        raise RefusedError("; ".join(problems) or f"{history} has no run of the site {site.name} yet")
    report = build(
        envelopes,
        store.of_site(inputs.options.site, site, history),
        site.name,
        site.night_ends,
        datetime.datetime.now().astimezone(),
        problems,
        options=typed,
        ending=endings_in(history, problems),
        totals=reader.measured(history, site.name, totals_of, []),
    )
    write_page(report, path, inputs.options.runs)
    return report.headline
