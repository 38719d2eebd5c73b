"""What is said of files in memory is what the kernel does with them: written, dropped, mapped, somebody else's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.data import mincore, pagecache
from models.errors import DataMissing, ImpossibleRequest
from tests.data.sets import open_below

ROOT = Path(__file__).resolve().parents[2]
PAGE = os.sysconf("SC_PAGE_SIZE")
SIZE = 64 * PAGE
NOBODY = 65534

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells what is in memory")


TMPFS = 0x01021994  # its f_type of statfs(2)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder from which files can be dropped: /tmp may be kept in memory."""
    for parent in (tmp_path, Path("/var/tmp"), ROOT):
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            (Path(folder) / "probe").write_bytes(b"x")
            if kind(Path(folder) / "probe") not in {TMPFS, *mincore.OWN_CACHE}:
                yield Path(folder)
                return
    pytest.skip("neither the temporary folder nor /var/tmp nor the repository is on a disk that Linux caches itself")


def kind(path: Path) -> int:
    with mincore.opened(os.fsencode(path)) as descriptor:
        return mincore.file_system(descriptor)


def write(folder: Path, sizes: list[int]) -> list[bytes]:
    """Files of these sizes, not yet written to the disk by anybody."""
    paths = []
    for number, size in enumerate(sizes):
        path = folder / f"data-{number}"
        path.write_bytes(os.urandom(size))
        paths.append(os.fsencode(path))
    return paths


def read(path: bytes, pages: int) -> None:
    """The first pages, and nothing ahead of them."""
    with mincore.opened(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        for page in range(pages):
            assert len(os.pread(descriptor, PAGE, page * PAGE)) == PAGE


# --- looking, dropping, loading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE + 17, 1_000_003])
def test_a_file_is_in_memory_until_it_is_dropped(disk, size):
    (path,) = write(disk, [size])
    before = Path(os.fsdecode(path)).read_bytes()
    assert pagecache.resident([path]) == (size, size)
    pagecache.drop([path])  # it was dirty
    assert pagecache.resident([path]) == (0, size)
    assert pagecache.load([path]) == size
    assert pagecache.resident([path]) == (size, size)
    assert Path(os.fsdecode(path)).read_bytes() == before


def test_a_part_that_was_read_is_counted_page_by_page(disk):
    (path,) = write(disk, [SIZE])
    pagecache.drop([path])
    read(path, 10)
    assert pagecache.resident([path]) == (10 * PAGE, SIZE)
    assert pagecache.resident([path]) == (10 * PAGE, SIZE), "looking reads nothing"


def test_an_even_sample_stands_for_all(disk):
    paths = write(disk, [SIZE] * 10)
    pagecache.drop(paths[::2])
    assert pagecache.resident(paths) == (5 * SIZE, 10 * SIZE)
    assert pagecache.resident(paths, most=5) == (0, 5 * SIZE)  # 0, 2, 4, 6, 8
    assert pagecache.resident(paths, most=3) == (SIZE, 3 * SIZE)  # 0, 3, 6
    assert pagecache.resident(paths, most=1) == (0, SIZE)


def test_nothing_stays_open_or_mapped(disk):
    paths = write(disk, [SIZE] * 20)

    def held() -> tuple[int, int]:
        return len(open_below(disk)), Path("/proc/self/maps").read_text().count(os.path.realpath(disk))

    with mincore.opened(paths[0]):
        assert held() == (1, 0)
    assert pagecache.resident(paths) == (20 * SIZE, 20 * SIZE)
    pagecache.drop(paths)
    pagecache.load(paths)
    assert held() == (0, 0)


def test_empty_files_and_no_files(disk):
    (empty,) = write(disk, [0])
    assert pagecache.resident([empty]) == (0, 0)
    assert pagecache.resident([]) == (0, 0)
    pagecache.drop([empty])
    assert pagecache.load([empty, empty]) == pagecache.load([]) == 0
    assert pagecache.prepare([empty], "as-is") is None


@pytest.mark.parametrize(("work", "wish"), [(pagecache.drop, "cold"), (pagecache.load, "warm")], ids=["cold", "warm"])
def test_a_file_that_is_gone_is_named(disk, work, wish):
    paths = [*write(disk, [PAGE] * 20), os.fsencode(disk / "gone")]
    with pytest.raises(DataMissing, match=r"gone .*No such file"):
        work(paths)
    assert pagecache.resident(paths) is None
    for files in (paths, paths[::-1]):
        assert pagecache.prepare(files, "as-is") is None
        with pytest.raises(DataMissing, match=r"gone .*No such file"):
            pagecache.prepare(files, wish)


@pytest.mark.parametrize(("ctrl_c", "error"), [(False, DataMissing), (True, KeyboardInterrupt)])
def test_an_error_and_ctrl_c_end_all_threads(disk, ctrl_c, error):
    class Endless(list[bytes]):
        def __len__(self):
            return 10**9

        def __getitem__(self, number):
            if number == 100 and ctrl_c:
                os.kill(os.getpid(), signal.SIGINT)
            return path if number != 100 or ctrl_c else os.fsencode(disk / "gone")

    (path,) = write(disk, [SIZE])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(error):
            pagecache.load(Endless())
    finally:
        signal.signal(signal.SIGINT, before)


# --- wishes ----------------------------------------------------------------------------------------------------------


def test_wishes_are_fulfilled_and_verified(disk):
    paths = write(disk, [SIZE] * 8)
    assert pagecache.prepare(paths, "as-is") == 1
    assert pagecache.prepare(paths, "cold") == 0
    assert pagecache.prepare(paths, "as-is") == 0
    pagecache.load(paths[:2])
    assert pagecache.prepare(iter(paths), "as-is") == 0.25
    assert pagecache.prepare(paths, "warm") == 1
    assert pagecache.prepare(paths, "as-is") == 1


def test_a_set_that_lies_in_memory_cannot_be_cold():
    if not Path("/dev/shm").is_dir() or kind(Path("/proc/self/status")) == kind(Path("/dev/shm")):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        paths = write(Path(folder), [SIZE] * 3)
        with pytest.raises(ImpossibleRequest) as refused:
            pagecache.prepare(paths, "cold")
        assert pagecache.prepare(paths, "warm") == 1
    for part in ("100%", f"in {folder} stay in memory", "tmpfs", "--data-dir", "without --cache cold"):
        assert part in str(refused.value)


HOLD = """
import ctypes, mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | ({lock} and mmap.PROT_WRITE))
if {lock}:
    assert not ctypes.CDLL(None).mlock(ctypes.byref(ctypes.c_char.from_buffer(held)), ctypes.c_size_t(len(held)))
else:
    sum(held[::4096])
print("holds", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def holder(path: bytes, lock: bool) -> Iterator[subprocess.Popen[str]]:
    code = HOLD.format(lock=lock).replace('"rb"', '"r+b"' if lock else '"rb"')
    arguments, pipe = [sys.executable, "-c", code, os.fsdecode(path)], subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "holds\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("lock", [False, True], ids=["mapped", "locked"])
def test_a_file_that_another_process_holds_cannot_be_cold(disk, lock):
    paths = write(disk, [SIZE] * 3)
    with holder(paths[1], lock):
        with pytest.raises(ImpossibleRequest) as refused:
            pagecache.prepare(paths, "cold")
        assert pagecache.prepare(paths, "as-is") == pytest.approx(1 / 3)
    for part in ("33%", f"in {disk} stay", "another process reads or maps the files", "without --cache cold"):
        assert part in str(refused.value)
    assert pagecache.prepare(paths, "cold") == 0, "it is gone"


@pytest.mark.slow
def test_little_that_is_held_is_no_harm(disk):
    paths = write(disk, [SIZE] * 20)
    with holder(paths[7], lock=False):
        assert pagecache.prepare(paths, "cold") == 0.05


def test_what_memory_cannot_hold_is_refused_before_it_is_read(disk):
    paths = write(disk, [1, 1])
    for path in paths:
        os.truncate(path, 9 << 40)  # nothing is written for it
    with pytest.raises(ImpossibleRequest) as refused:
        pagecache.prepare(paths, "warm")
    for part in ("2 file(s) of 19,791.2 GB", "do not fit", "GB of memory", "without --cache warm"):
        assert part in str(refused.value)


# --- what is not known -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Where root runs the tests; any other user already is no owner of root's files."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_of_others_files_nothing_is_claimed(tmp_path):
    path = b"/etc/passwd"
    with as_nobody():
        assert pagecache.resident([path]) is None
        assert pagecache.prepare([path], "as-is") is None
        for wish in ("cold", "warm"):
            with pytest.raises(ImpossibleRequest) as refused:
                pagecache.prepare([path], wish)
            for part in (f"--cache {wish} cannot be verified", "/etc/passwd belongs to user 0", "only a file's owner"):
                assert part in str(refused.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to somebody else")
def test_root_is_told_about_all_and_others_about_what_they_may_write():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        paths = write(Path(folder), [SIZE])
        file = Path(os.fsdecode(paths[0]))
        file.chmod(0o644)
        pagecache.drop(paths)
        known = pagecache.resident(paths)
        with as_nobody():
            assert pagecache.resident(paths) is None
        file.chmod(0o666)
        with as_nobody():
            assert pagecache.resident(paths) == known
        os.chown(file, NOBODY, NOBODY)
        file.chmod(0o400)
        assert pagecache.resident(paths) == known
        with as_nobody():
            assert pagecache.resident(paths) == known
