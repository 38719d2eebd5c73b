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
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd="/")


def test_runs_by_path(source: Path, tmp_path: Path) -> None:
    built = code_archive.build(source, tmp_path / "archives")

    done = run(sys.executable, built.path, "train", "a b")

    assert (done.returncode, done.stdout) == (0, "main ['train', 'a b'] None\n"), done.stderr
    assert run(sys.executable, built.path, "fail").returncode == 7
    assert run(sys.executable, "-I", "-S", built.path).returncode == 0


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_start_from_it(source: Path, tmp_path: Path, method: str) -> None:
    built = code_archive.build(source, tmp_path)

    done = run(sys.executable, built.path, "workers", method)

    assert done.stdout.splitlines() == [f"main ['workers', '{method}'] None", "doubled [2, 4, 6]"], done.stderr


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
