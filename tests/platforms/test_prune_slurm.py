"""What jobs have left in a work_dir of a real Slurm: seen and removed from its login node, here and through sshd."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from platforms.__main__ import main
from platforms.config.schema import Platform
from platforms.rundir.retention import DAY_S
from platforms.rundir.session_history import DONE, PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers.slurm import queries
from platforms.schedulers.work_dir import WorkDir
from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd

pytestmark = pytest.mark.real_slurm
NIGHTLY = pytest.mark.nightly("platforms/commands/prune.py", "platforms/schedulers/work_dir.py", "platforms/transports")


def name_of(kind: str) -> str:
    return f"{kind}-1x1cpu-k{(kind + 'aaaaaaa')[:7].replace('-', 'a')}"


@dataclass
class Place:
    """A platform, its work_dir, and the runs of this machine."""

    slurm: Cluster
    site: Path
    work: Path
    runs: Path

    def prune(self, *words: str) -> int:
        return main(["prune", "mine", "--site", str(self.site), "--runs-dir", str(self.runs), *words])

    def folder(self, kind: str, days: float = 40, *, ended: bool = True) -> Path:
        """Of a job, as its submission and its script leave it."""
        folder = self.work / "jobs" / name_of(kind)
        (folder / "claim").mkdir(parents=True)
        (folder / "work").mkdir()
        (folder / "work/steps").write_bytes(bytes(100_000))
        (folder / "id").write_text("999999\n")
        (folder / "job.sh").write_text("python train\n")
        if ended:
            (folder / "exit").write_text("exit_code=0 ended=1 log_bytes=0 refused=\n")
        self.aged(folder, days)
        return folder

    def aged(self, path: Path, days: float = 40) -> None:
        then = time.time() - days * DAY_S
        for each in (*path.rglob("*"), path):
            os.utime(each, (then, then), follow_symlinks=False)

    def submit(self, kind: str, *options: str) -> str:
        """A job that waits, with a folder as if of last month."""
        words = ("--parsable", f"--job-name={name_of(kind)}", "--account=z19", *options)
        said = self.slurm.run("sbatch", *words, text="#!/bin/sh\nsleep 60\n")
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    @property
    def jobs(self) -> list[str]:
        return sorted(path.name for path in (self.work / "jobs").iterdir())


@pytest.fixture(params=["local", pytest.param("openssh", marks=NIGHTLY)])
def place(request: pytest.FixtureRequest, slurm: Cluster, tmp_path: Path) -> Iterator[Place]:
    place = Place(slurm, tmp_path / "site", tmp_path / "a folder's work%j", tmp_path / "runs")
    (place.site / "platforms").mkdir(parents=True)
    (place.site / "site.yaml").write_text("enabled: [mine]\n")
    keys: dict[str, object] = {"scheduler": "slurm", "device": "cpu", "layouts": {"default": ["1x1"]}}
    server = None
    if request.param == "openssh":
        server = Sshd(tmp_path / "sshd", setenv=slurm.environ)
        keys |= {"transport": "openssh", "host": "login", "ssh_config": str(server.config)}
    (place.site / "platforms/mine.yaml").write_text(yaml.safe_dump({**keys, "work_dir": str(place.work)}))
    place.runs.mkdir()
    try:
        yield place
    finally:
        if server is not None:
            server.stop()


def test_folders_of_jobs_that_slurm_no_longer_knows_go(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "brief")  # of somebody who looks at others than ours
    assert place.prune("--yes") == 0  # nothing was ever brought there
    assert "nothing is old enough to go" in capsys.readouterr().out
    outside = place.work.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    for kind, settings in {
        "old": {},
        "young": {"days": 3},
        "silent": {"ended": False, "days": 5},
        "lost": {"ended": False},
        "long-ago": {"ended": False, "days": 181},
        "pending": {"ended": False},
        "resumed": {},
    }.items():
        place.folder(kind, **settings)  # type: ignore[arg-type]
    (place.folder("linking") / "out").symlink_to(outside)
    place.aged(place.work / "jobs" / name_of("linking"))
    (place.work / "jobs" / name_of("link")).symlink_to(outside)
    (place.work / "jobs" / "my notes; rm -rf x").mkdir()
    kept = [name_of(kind) for kind in ("young", "silent", "lost", "pending", "resumed", "link")]
    if os.geteuid() == 0:  # only root can give a folder to somebody else
        os.chown(place.folder("others"), 65534, 65534)
        kept.append(name_of("others"))
    place.aged(place.work / "jobs" / "my notes; rm -rf x")
    session = Journal(place.runs / "r1", {"tests": ["t"], "options": {}})
    session.write_jobs([{"test": "t", "attempt": 1, "name": name_of("resumed"), "platform": "mine", "state": "queued"}])
    session.end(PENDING)
    job_id = place.submit("pending", "--hold")

    assert place.prune("--dry-run") == 0
    said = capsys.readouterr().out
    for line in (
        f"{name_of('old')}.*goes",
        f"{name_of('lost')}.*stays: no exit file: 180 days",
        f"{name_of('pending')}.*stays: the job is PENDING",
        f"{name_of('resumed')}.*stays: run r1: unfinished: pytest --resume=r1",
        "1 younger ones stay",
    ):
        assert re.search(line, said), (line, said)
    assert name_of("others") not in said
    assert len(place.jobs) == len(kept) + 4
    assert place.prune("--yes") == 0, capsys.readouterr()
    assert place.jobs == sorted([*kept, "my notes; rm -rf x"])
    assert (outside / "file").exists()

    place.slurm.run("scancel", job_id)
    session = Journal(place.runs / "r1", {"tests": ["t"], "options": {}})
    session.end(DONE)
    assert place.prune("--yes", "--keep-failed-days=0", "--keep-days=4") == 0
    assert name_of("lost") not in place.jobs
    assert name_of("silent") in place.jobs  # another cluster's job, for all we know
    assert name_of("resumed") in place.jobs


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_nothing_goes_while_slurm_does_not_answer(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.folder("old")
    away = place.site / "squeue"
    away.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n")
    away.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{place.site}:{os.environ['PATH']}")
        assert place.prune("--yes") == 2
    said = capsys.readouterr().err
    assert (
        f"this machine, {place.work}: it is not known which jobs live, so nothing is removed: slurm_load_jobs" in said
    )
    assert place.jobs == [name_of("old")]


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_folder_that_changed_after_the_listing_stays(place: Place) -> None:
    """By a job that writes again, or is submitted again."""
    written, untouched = place.folder("old"), place.folder("other")
    fixed = {"scheduler": "slurm", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("x")}
    with WorkDir(Platform(name="mine", work_dir=str(place.work), **fixed), queries.LIVE_JOBS) as work_dir:
        found = work_dir.find()
        time.sleep(1.1)  # the login node counts in seconds
        (written / "log").write_text("again\n")
        assert work_dir.remove(found) == [f"{place.work}/jobs/{written.name}: it has changed just now"]
    assert place.jobs == [written.name]
    assert not untouched.exists()
