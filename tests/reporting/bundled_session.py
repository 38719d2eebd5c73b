"""A site with the history and the folder of runs of one real session, for tests of bundles."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from platforms.job import Outcome, Trial, job_key
from platforms.rundir import job_folder
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


def session(folder: Path) -> BundledSession:
    """Write a site with the jobs of the recorded session."""
    (folder / "site" / "platforms").mkdir(parents=True)
    (folder / "site" / "site.yaml").write_text("name: centre\n")
    writer = HistoryWriter(folder / "history", clock=lambda: 1795407500.0)
    for name in ALL:
        job = folder / "runs" / RUN_ID / name
        (job / "work").mkdir(parents=True)
        for path in sorted((RECORDED / name).iterdir()):
            if path.suffix == ".csv":
                with gzip.open(job / "work" / f"{path.name}.gz", "wb") as file:
                    file.write(path.read_bytes())
            else:
                (job / path.name).write_bytes(path.read_bytes())
        content = json.loads((job / "run.json").read_text())
        key = job_key(content["test"], Trial.from_content(content["trial"]).key)
        job.rename(job.with_name(job_folder.folder_name(key)))
        envelope = envelope_of(
            content,
            site="centre",
            run_id=RUN_ID,
            attempt=1,
            outcome=Outcome.PASSED,
            sane=True,
            revision=3,
            written_s=1795407600.0,
        )
        writer.write(envelope, content)
    return BundledSession(folder)
