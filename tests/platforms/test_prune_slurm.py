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
from platforms.rundir.retention import DAY_S, Retention
from platforms.rundir.session_history import DONE, PENDING
from platforms.rundir.session_journal import Journal
from platforms.schedulers.slurm import queries
from platforms.schedulers.work_dir import listing, removal, removal_plan
from platforms.transports.local import LocalTransport
from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd

pytestmark = pytest.mark.real_slurm
CODE = [f"models-{digit * 12}.pyz" for digit in "0123"]


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

    def folder(self, kind: str, days: float = 40, code: str = CODE[0], ended: int | None = 0) -> Path:
        """Of a job, as its submission and its script leave it."""
        folder = self.work / "jobs" / name_of(kind)
        (folder / "claim").mkdir(parents=True)
        (folder / "work").mkdir()
        (folder / "work/steps").write_bytes(bytes(100_000))
        (folder / "id").write_text("999999\n")
        (folder / "not_after").write_text("1\n")
        (folder / "job.sh").write_text(f"python '{self.work}/archives/{code}' train\n")
        if ended is not None:
            (folder / "exit").write_text(f"exit_code={ended} ended=1 log_bytes=0 refused=\n")
        self.aged(folder, days)
        return folder

    def aged(self, path: Path, days: float = 40) -> None:
        then = time.time() - days * DAY_S
        for each in (*path.rglob("*"), path):
            os.utime(each, (then, then), follow_symlinks=False)

    def submit(self, kind: str, *options: str) -> str:
        """A job that waits, with a folder as if of last month."""
        said = self.slurm.run(
            "sbatch",
            "--parsable",
            f"--job-name={name_of(kind)}",
            "--account=z19",
            *options,
            text="#!/bin/sh\nsleep 60\n",
        )
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()

    @property
    def jobs(self) -> list[str]:
        return sorted(path.name for path in (self.work / "jobs").iterdir())


@pytest.fixture(params=["local", "openssh"])
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
    monkeypatch.setattr(removal, "ARCHIVES_S", 1)
    monkeypatch.setenv("SQUEUE_PARTITION", "brief")  # of somebody who looks at others than ours
    assert place.prune("--yes") == 0  # nothing was ever brought there
    assert f"{place.work} is not there, so nothing was brought there yet" in capsys.readouterr().out
    outside = place.work.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    for kind, settings in {
        "old": {},
        "young": {"days": 3},
        "failed": {"ended": 143},
        "long-ago": {"ended": 143, "days": 181},
        "silent": {"ended": None, "days": 5},
        "pending": {"ended": None, "code": CODE[1]},
        "resumed": {"code": CODE[2]},
        "others": {"code": CODE[2]},
    }.items():
        place.folder(kind, **settings)  # type: ignore[arg-type]
    (place.folder("linking") / "out").symlink_to(outside)
    place.aged(place.work / "jobs" / name_of("linking"))
    (place.work / "jobs" / name_of("link")).symlink_to(outside)
    (place.work / "jobs" / name_of("empty")).mkdir()
    (place.work / "jobs" / "my notes; rm -rf x").mkdir()
    (place.work / "jobs" / f".going-{name_of('half')}").mkdir()
    os.chown(place.work / "jobs" / name_of("others"), 65534, 65534)
    archives = place.work / "archives"
    archives.mkdir()
    for name in (*CODE, f".{CODE[0]}.0123abcd", "mine.pyz"):
        (archives / name).write_text("x")
    place.aged(archives)
    place.aged(place.work / "jobs" / name_of("empty"))
    session = Journal(place.runs / "r1", {"tests": ["t"], "options": {}})
    session.write_jobs([{"test": "t", "attempt": 1, "name": name_of("resumed"), "platform": "mine", "state": "queued"}])
    session.end(PENDING)
    job_id = place.submit("pending", "--hold")

    assert place.prune("--dry-run") == 0
    said = capsys.readouterr().out
    for line in (
        f"{name_of('old')}.*goes",
        f"{name_of('failed')}.*stays: exit code 143: 180 days",
        f"{name_of('pending')}.*stays: the job is PENDING",
        f"{name_of('resumed')}.*stays: run r1: unfinished: pytest --resume=r1",
        f"{name_of('others')}.*stays: it belongs to user 65534",
        f"{name_of('empty')}.*stays: nothing in it is a job's",
        f"{CODE[3]}.*goes: code that no job there needs",
        "2 younger ones stay",
    ):
        assert re.search(line, said), (line, said)
    kept = [name_of(kind) for kind in ("young", "failed", "silent", "pending", "resumed", "others", "link", "empty")]
    assert len(place.jobs) == len(kept) + 5
    assert place.prune("--yes") == 0, capsys.readouterr()
    assert place.jobs == sorted([*kept, "my notes; rm -rf x"])
    assert (outside / "file").exists()
    assert sorted(path.name for path in archives.iterdir()) == sorted([*CODE[:3], "mine.pyz"])

    place.slurm.run("scancel", job_id)
    session = Journal(place.runs / "r1", {"tests": ["t"], "options": {}})
    session.end(DONE)
    assert place.prune("--yes", "--keep-failed-days=0", "--keep-days=4") == 0
    assert name_of("failed") not in place.jobs
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
        "this machine: it is not known which jobs live, so nothing is removed: slurm_load_jobs error: Unable to" in said
    )
    assert place.jobs == [name_of("old")]


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_folder_that_changed_after_the_listing_is_put_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a job that writes again, and by one that is submitted with code that nobody had needed."""
    written, submitted = place.folder("old"), place.folder("new", days=1, code=CODE[1])
    (place.work / "archives").mkdir()
    (place.work / "archives" / CODE[3]).write_text("x")
    place.aged(place.work / "archives")
    monkeypatch.setattr(removal, "ARCHIVES_S", 1)
    fixed = {"scheduler": "slurm", "device": "cpu", "layouts": {"default": ("1x1",)}, "source": Path("x")}
    transport = LocalTransport(Platform(name="mine", work_dir=str(place.work), **fixed))
    judged = removal_plan.plan_removal(
        listing.list_work_dir(transport, str(place.work), queries.LIVE_JOBS), Retention(), {}, {}
    )
    assert [each.name for each in judged.jobs if each.goes] == [written.name]
    (written / "log").write_text("again\n")
    (submitted / "job.sh").write_text(f"python archives/{CODE[3]}\n")
    gone, wrong = removal.remove(transport, str(place.work), judged)
    assert gone == []
    assert wrong == [
        f"{place.work}/jobs/{written.name}: it has changed just now",
        f"{place.work}/archives/{CODE[3]}: a job has just begun to need it",
    ]
    assert place.jobs == sorted([written.name, submitted.name])
    assert [path.name for path in (place.work / "archives").iterdir()] == [CODE[3]]
