"""`export bundle` writes whole runs into one file, and `import runs` makes a history of their own of it."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from platforms.rundir.session_history import DONE
from platforms.rundir.session_journal import Journal
from reporting.__main__ import main
from tests.reporting.bundled_session import RESNET, RUN_ID, BundledSession, session

Capture = pytest.CaptureFixture[str]


def bundle(made: BundledSession, *words: str) -> Path:
    path = made.folder / "runs.tar.gz"
    runs_dir = f"--runs-dir={made.folder / 'runs'}"
    assert main(["export", "bundle", *words, "-o", str(path), runs_dir, *made.options]) == 0
    return path


def changed(path: Path, name: str, content: bytes | None) -> Path:
    """A bundle whose file of this name is another one, or is added. None removes it. `link` is a link."""
    other = path.with_name("changed.tar.gz")
    with tarfile.open(path) as old, tarfile.open(other, "w:gz") as new:
        for member in old:
            if member.name != name:
                new.addfile(member, old.extractfile(member))
        if content is not None:
            member = tarfile.TarInfo(name)
            member.type = tarfile.SYMTYPE if name == "link" else tarfile.REGTYPE
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return other


def test_another_centre_sees_the_same_tables(tmp_path: Path, capsys: Capture) -> None:
    made = session(tmp_path / "here")
    path = bundle(made, "latest")
    capsys.readouterr()
    assert main(["table", "--all", *made.options]) == 0
    ours = capsys.readouterr().out
    assert "25.1" in ours
    folder = tmp_path / "there"
    assert main(["import", "runs", str(path), f"--to={folder}"]) == 0
    printed = capsys.readouterr().out
    assert f"python -m reporting table --site={folder}\n" in printed
    assert main(["table", "--all", f"--site={folder}"]) == 0
    assert capsys.readouterr().out == ours
    assert (folder / "runs" / RUN_ID / RESNET / "job.sh").read_bytes() == (made.jobs / RESNET / "job.sh").read_bytes()


def test_its_table_has_all_digits_and_no_verdict(tmp_path: Path) -> None:
    with tarfile.open(bundle(session(tmp_path))) as archive:
        file = archive.extractfile("table.csv")
        rows = list(csv.DictReader(io.TextIOWrapper(file)))
    assert "25.07830415077567" in {row["value"] for row in rows}
    assert {(row["verdict"], row["is_red"], row["pin"]) for row in rows} == {("", "", "")}


def test_sha256sum_checks_it_and_it_names_no_user(tmp_path: Path) -> None:
    path = bundle(session(tmp_path))
    with tarfile.open(path) as archive:
        assert {(member.uid, member.uname, member.gname) for member in archive} == {(0, "", "")}
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "--extract", f"--file={path}"], cwd=tmp_path / "unpacked", check=True)
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path / "unpacked", check=True)


def test_a_run_without_its_folder_is_named(tmp_path: Path, capsys: Capture) -> None:
    made = session(tmp_path)
    made.jobs.rename(tmp_path / "elsewhere")
    bundle(made, RUN_ID)
    assert f"has no folder of: {RUN_ID}" in capsys.readouterr().out


def test_a_run_whose_session_goes_on_is_refused(tmp_path: Path, capsys: Capture) -> None:
    made = session(tmp_path)
    journal = Journal(made.jobs, {"tests": ["test_resnet50.py::test_resnet50[twin-1x1cpu-gbs32]"], "options": {}})
    words = ["export", "bundle", "latest", "-o", str(tmp_path / "x.tar.gz"), f"--runs-dir={tmp_path / 'runs'}"]
    assert main([*words, *made.options]) == 2
    journal.end(DONE)
    assert "its session still runs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("table.csv", b"test\n", "table.csv: its sha256 is another one"),
        ("table.csv", None, "table.csv: it is missing"),
        ("more.txt", b"", "more.txt: it is not in SHA256SUMS"),
        ("SHA256SUMS", None, "it has no SHA256SUMS"),
        ("../out.txt", b"x", "would lie outside of the folder"),
        ("link", b"", "'link' is no file"),
    ],
)
def test_a_changed_bundle_is_refused_and_leaves_nothing(
    name: str, content: bytes | None, why: str, tmp_path: Path, capsys: Capture
) -> None:
    path = changed(bundle(session(tmp_path)), name, content)
    before = sorted(tmp_path.iterdir())
    assert main(["import", "runs", str(path), f"--to={tmp_path / 'new'}"]) == 2
    assert why in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["export", "bundle", "--tonight=2026-11-17", "-o", "x.tar.gz"], "--tonight: "),
        (["export", "prometheus", "--runs-dir=runs"], "--runs-dir: "),
        (["import", "runs", "x.tar.gz", "--since=2026-11-17"], "neither --better nor --since"),
        (["import", "runs", "x.tar.gz", "y.tar.gz"], "one file at a time"),
        (["import", "runs", "x.tar.gz"], "there is no such file"),
        (["import", "reframe", "x.json", "--to=x"], "--to: "),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(words: list[str], why: str, capsys: Capture) -> None:
    assert main(words) == 2
    assert why in capsys.readouterr().err


def test_a_damaged_bundle_is_refused(tmp_path: Path, capsys: Capture) -> None:
    """Cut off, or with one bit that is another one."""
    path = bundle(session(tmp_path))
    content = path.read_bytes()
    damaged = [content[:2000]]
    for place in range(40, len(content), len(content) // 6):
        damaged.append(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
    for each in damaged:
        path.write_bytes(each)
        assert main(["import", "runs", str(path), f"--to={tmp_path / 'new'}"]) == 2
        assert f"error: {path}: " in capsys.readouterr().err
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", [b"a\nb", b"\xff"])
def test_a_file_whose_name_the_sums_cannot_hold_is_refused_by_name(
    name: bytes, tmp_path: Path, capsys: Capture
) -> None:
    made = session(tmp_path)
    (made.jobs / os.fsdecode(name)).touch()
    words = ["export", "bundle", "latest", "-o", str(tmp_path / "x.tar.gz"), f"--runs-dir={tmp_path / 'runs'}"]
    assert main([*words, *made.options]) == 2
    assert "SHA256SUMS cannot hold this name" in capsys.readouterr().err


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: Capture) -> None:
    assert main(["import", "runs", str(bundle(session(tmp_path))), f"--to={tmp_path / 'site'}"]) == 2
    assert "it is there already" in capsys.readouterr().err


def test_a_run_that_is_not_known_is_refused_with_those_that_are(tmp_path: Path, capsys: Capture) -> None:
    made = session(tmp_path)
    words = ["export", "bundle", "nightly", "-o", str(tmp_path / "x.tar.gz"), f"--runs-dir={tmp_path / 'runs'}"]
    assert main([*words, *made.options]) == 2
    assert f"the last runs are {RUN_ID}" in capsys.readouterr().err
