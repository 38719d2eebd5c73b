"""The archive runs by path, under torchrun and in processes that it starts; its bytes depend on its members alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from platforms.job import RefusedError
from platforms.rundir import code_archive
from tests.programs import require

FILES = {
    "__init__.py": "",
    "__main__.py": """
import os, sys
from models import work

if __name__ == "__main__":
    sys.stdout.write(f"main {sys.argv[1:]} {os.environ.get('RANK')}\\n")  # at once: ranks share the pipe
    sys.stdout.flush()
    if sys.argv[1:2] == ["workers"]:
        work.main(sys.argv[2])
    sys.exit(7 if sys.argv[1:2] == ["fail"] else 0)
""",
    "work.py": """
import multiprocessing
from models.data import numbers

class Task:
    def __init__(self, value):
        self.value = value

def double(task):
    return task.value * numbers.TWO

def main(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        print("doubled", pool.map(double, [Task(1), Task(2), Task(3)]), flush=True)
""",
    "data/__init__.py": "",
    "data/numbers.py": "TWO = 2\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "one" / "models")


def write(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, cwd="/")


@pytest.mark.slow
def test_runs_by_path(source: Path, tmp_path: Path) -> None:
    built = code_archive.build(source, tmp_path / "archives")

    done = run(sys.executable, built.path, "train", "a b")

    assert (done.returncode, done.stdout) == (0, "main ['train', 'a b'] None\n"), done.stderr
    assert run(sys.executable, built.path, "fail").returncode == 7
    assert run(sys.executable, "-I", "-S", built.path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_start_from_it(source: Path, tmp_path: Path, method: str) -> None:
    built = code_archive.build(source, tmp_path)

    done = run(sys.executable, built.path, "workers", method)

    assert done.stdout.splitlines() == [f"main ['workers', '{method}'] None", "doubled [2, 4, 6]"], done.stderr


@pytest.mark.slow
def test_runs_under_torchrun(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    built = code_archive.build(source, tmp_path)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]

    done = run(*launcher, "--nproc-per-node=2", built.path, "train")

    assert sorted(done.stdout.splitlines()) == ["main ['train'] 0", "main ['train'] 1"], done.stderr


def test_bytes_depend_on_the_members_alone(source: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "two" / "models")
    for number, path in enumerate(sorted(other.rglob("*"), reverse=True)):
        path.chmod(0o700)
        os.utime(path, (1e9 + number, 1e9 + number))
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "work.cpython-311.pyc").write_bytes(b"x")
    (other / ".work.py.swp").write_text("x")
    (other / "work.py~").write_text("x")

    first, second = code_archive.build(source, tmp_path / "a"), code_archive.build(other, tmp_path / "b")

    assert first.code == second.code
    assert first.path.name == second.path.name == f"models-{first.code}.pyz"
    assert len(first.code) == 12
    assert first.path.read_bytes() == second.path.read_bytes()
    with zipfile.ZipFile(first.path) as members:
        assert members.namelist() == ["__main__.py", *sorted(f"models/{name}" for name in FILES)]


@pytest.mark.parametrize(("name", "text"), [("data/numbers.py", "TWO = 3\n"), ("data/more.py", "")])
def test_code_changes_with_a_member(source: Path, tmp_path: Path, name: str, text: str) -> None:
    before = code_archive.build(source, tmp_path / "a")
    (source / name).write_text(text)

    assert code_archive.build(source, tmp_path / "a").code != before.code


def test_is_written_once_and_whole(source: Path, tmp_path: Path) -> None:
    built = code_archive.build(source, tmp_path / "a")
    content, inode = built.path.read_bytes(), built.path.stat().st_ino

    assert code_archive.build(source, tmp_path / "a").path.stat().st_ino == inode
    built.path.write_bytes(content[:100])  # a full disk, long ago
    assert code_archive.build(source, tmp_path / "a").path.read_bytes() == content
    assert [path.name for path in (tmp_path / "a").iterdir()] == [built.path.name]


def test_needs_something_to_run(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"no __main__\.py"):
        code_archive.build(tmp_path, tmp_path)


# --- of another commit -----------------------------------------------------------------------------------------------


def git(clone: Path, *words: str) -> str:
    require("git", install="apt-get install git")
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=clone, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def clone(source: Path) -> Path:
    """A clone with two commits: `old` has models/, the last one has another models/."""
    folder = source.parent
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "old")
    git(folder, "tag", "old")
    (source / "data" / "numbers.py").write_text("TWO = 3\n")
    git(folder, "commit", "-q", "-a", "-m", "new")
    return folder


@pytest.mark.slow
def test_the_archive_of_a_commit_is_the_one_that_was_built_from_its_files(clone: Path, tmp_path: Path) -> None:
    commit = code_archive.full_commit(clone, "old")
    assert commit == git(clone, "rev-parse", "old")
    old = code_archive.build_from_commit(clone, commit, tmp_path / "archives")
    assert old.code != code_archive.build(clone / "models", tmp_path / "archives").code

    git(clone, "checkout", "-q", "old")
    now = code_archive.build(clone / "models", tmp_path / "others")
    assert old.code == now.code
    assert old.path.read_bytes() == now.path.read_bytes()
    assert run(sys.executable, old.path, "fail").returncode == 7


@pytest.mark.parametrize("name", ["gone", "", "--all"])
def test_an_unknown_commit_is_refused(clone: Path, name: str) -> None:
    with pytest.raises(RefusedError, match=r"has no commit '.*fetch --all --tags` may bring it"):
        code_archive.full_commit(clone, name)


def test_without_a_clone_there_are_no_other_commits(source: Path, tmp_path: Path) -> None:
    require("git", install="apt-get install git")
    with pytest.raises(RefusedError, match=r"is no git clone, so it has no other commits \(.*not a git repository"):
        code_archive.full_commit(source.parent, "old")


@pytest.mark.parametrize("left", ["README", "models/work.py"])
def test_a_commit_without_a_package_that_runs_is_refused(clone: Path, tmp_path: Path, left: str) -> None:
    git(clone, "rm", "-q", "-r", "models")
    (clone / left).parent.mkdir(exist_ok=True)
    (clone / left).write_text("something\n")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "another project")
    with pytest.raises(RefusedError, match=r"has no models/__main__\.py.*is it a commit of this suite"):
        code_archive.build_from_commit(clone, code_archive.full_commit(clone, "HEAD"), tmp_path)
