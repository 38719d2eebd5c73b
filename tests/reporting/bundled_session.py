"""A site with the history and the folder of runs of one real session, for tests of bundles."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platforms.job import Outcome, Trial, job_key
from platforms.rundir import code_archive, job_folder
from reporting.__main__ import main
from reporting.history.run_facts import envelope_of
from reporting.history.writer import HistoryWriter

RECORDED = Path(__file__).parent / "recordings" / "session"
RUN_ID = "20261123-041819-4ddf"
RESNET = "test_resnet50-twin-1x1cpu-gbs32"
COSMOFLOW = "test_cosmoflow-twin-1x1cpu-tuned"
MINE = "site-test_mine-twin-1x1cpu"
STREAM = "site-test_mine-test_stream-twin-1x1cpu"
ALL = (RESNET, COSMOFLOW, MINE, STREAM)


@dataclass(frozen=True)
class BundledSession:
    """A folder with site/, history/ and runs/."""

    folder: Path

    @property
    def options(self) -> list[str]:
        return [f"--site={self.folder / 'site'}", f"--history={self.folder / 'history'}"]

    @property
    def jobs(self) -> Path:
        return self.folder / "runs" / RUN_ID

    def bundle(self, *words: str, name: str = "bundle.zip") -> Path:
        """Run the command `bundle` for the session, or for other words. It must succeed."""
        path = self.folder / name
        runs = [word for word in words if not word.startswith("-")] or [RUN_ID]
        flags = [word for word in words if word.startswith("-")]
        runs_dir = f"--runs-dir={self.folder / 'runs'}"
        assert main(["bundle", *runs, "-o", str(path), runs_dir, *flags, *self.options]) == 0
        return path


def session(
    folder: Path,
    jobs: tuple[str, ...] = ALL,
    *,
    change: Callable[[str], str] = lambda text: text,
    change_run: Callable[[dict[str, Any]], None] = lambda content: None,
    sane: bool = True,
    with_code: bool = False,
) -> BundledSession:
    """Write a site with these jobs.

    Args:
        change: is applied to every text of the recording.
        change_run: changes the content of a run.json, after that.
        sane: the tests have passed.
        with_code: write a code archive, and its name into the records.
    """
    (folder / "site" / "platforms").mkdir(parents=True)
    (folder / "site" / "site.yaml").write_text("name: centre\n")
    (folder / "history").mkdir()
    runs = folder / "runs"
    runs.mkdir()
    writer = HistoryWriter(folder / "history", clock=lambda: 1795407500.0)
    code = _code(folder) if with_code else ""
    for name in jobs:
        job = runs / RUN_ID / name
        (job / "work").mkdir(parents=True)
        for path in sorted((RECORDED / name).iterdir()):
            text = path.read_text()
            if with_code:
                text = text.replace("b5cf5c583633", code)
            if path.suffix == ".csv":
                with gzip.open(job / "work" / f"{path.name}.gz", "wt") as file:
                    file.write(change(text))
            elif path.name == "run.json":
                content = json.loads(change(text))
                change_run(content)
                path_here = job / path.name
                path_here.write_text(json.dumps(content))
            else:
                (job / path.name).write_text(change(text))
        key = job_key(content["test"], Trial.from_content(content["trial"]).key)
        job.rename(job.with_name(job_folder.folder_name(key)))
        outcome = Outcome.PASSED if sane else Outcome.ERROR
        envelope = envelope_of(
            content,
            site="centre",
            run_id=RUN_ID,
            attempt=1,
            outcome=outcome,
            sane=sane,
            revision=3,
            written_s=1795407600.0,
        )
        writer.write(envelope, content)
    return BundledSession(folder)


def _code(folder: Path) -> str:
    source = folder / "models"
    source.mkdir()
    (source / "__main__.py").write_text("print('trains')\n")
    return code_archive.build(source, folder / "runs" / "archives").code


NO_SPLIT = "its own nodes feed it"
_IN_WINDOW = ("stall_s", "compute_s", "stall_h2d_s", "wait_s", "h2d_s", "busy_s")
_IN_SUMMARY = ("stall_s", "compute_s", "compute_fraction", "compute_throughput", "identity_gap")


def without_split(text: str) -> str:
    """A text of the recording as a device writes it that does not tell waiting from computing."""
    if text.startswith("step,"):
        rows = [row.split(",") for row in text.splitlines()[1:]]
        whole = [f"{step},{window},,,,{sum(map(float, spans)):.9f}" for step, window, *spans in rows]
        return "\n".join(["step,window,wait,h2d,busy,whole", *whole, ""])
    if text.startswith("{"):
        return json.dumps(_run_without_split(json.loads(text)))
    return "\n".join(map(_line_without_split, text.split("\n")))


def _run_without_split(content: dict[str, Any]) -> dict[str, Any]:
    if content.get("windows"):
        content["windows"] = [
            {**window, **dict.fromkeys(window.keys() & set(_IN_WINDOW))} for window in content["windows"]
        ]
        content["summary"].update(dict.fromkeys(_IN_SUMMARY), no_split=NO_SPLIT)
        content.update(dict.fromkeys(_IN_SUMMARY[2:]))
    return content


def _line_without_split(line: str) -> str:
    head, marker, text = line.partition(":::MLLOG ")
    event = json.loads(text) if marker else {"key": ""}
    if event["key"] == "hpcml_window":
        event["value"].update(dict.fromkeys(_IN_WINDOW))
    elif event["key"] == "hpcml_summary":
        event["value"].update(dict.fromkeys(_IN_SUMMARY), no_split=NO_SPLIT)
    else:
        return line
    return f"{head}{marker}{json.dumps(event)}"


def contents_of(bundle: Path) -> dict[str, bytes]:
    """The files of a bundle, as any other program reads them."""
    with zipfile.ZipFile(bundle) as packed:
        return {member.filename: packed.read(member) for member in packed.infolist()}
