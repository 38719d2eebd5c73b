"""A synthetic set: the same everywhere, as costly to read as ImageNet, learnable, and complete or not there."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from models.data import publish
from models.data.imagenet import open_folder
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import SAMPLES, recipe, recipe_of
from models.errors import CommandError, DataCorrupt, DataMissing, ImpossibleRequest
from tests.data.sets import digests
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
SAMPLES_HERE, CLASSES = 70, 10


def write(folder: Path, samples: int = 6, classes: int = 3, seed: int = 0, processes: int = 1, **options):
    return write_set(str(folder), recipe_of(samples, classes, seed), processes=processes, **options)


def beside(folder: Path) -> list[str]:
    """What lies beside a set: leftovers, when there are any."""
    return sorted(path.name for path in folder.parent.iterdir() if path != folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A set that two processes wrote."""
    folder = tmp_path_factory.mktemp("sets") / "set"
    write(folder, SAMPLES_HERE, CLASSES, processes=2)
    return folder


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_number_of_processes(folder, tmp_path):
    steps = []
    write(tmp_path / "set", SAMPLES_HERE, CLASSES, progress=lambda done, total: steps.append((done, total)))
    assert digests(tmp_path / "set") == digests(folder)
    assert steps == [(done, SAMPLES_HERE) for done in range(1, SAMPLES_HERE + 1)]


@pytest.mark.slow
def test_another_seed_gives_other_pictures(folder, tmp_path):
    write(tmp_path / "set", seed=1)
    assert not set(digests(tmp_path / "set").values()) & set(digests(folder).values())


def test_pictures_are_like_imagenets(folder):
    sizes, heights, qualities = [], [], set()
    for path in folder.rglob("*.JPEG"):
        sizes.append(path.stat().st_size)
        with Image.open(path) as image:
            assert (image.format, image.mode, image.width) == ("JPEG", "RGB", 500)
            heights.append(image.height)
            qualities.add(tuple(image.quantization[0]))
    assert 110_000 < np.mean(sizes) < 130_000
    assert 333 <= min(heights) < 360
    assert 470 < max(heights) <= 500
    assert len(qualities) == 7
    assert len(set(digests(folder).values())) == SAMPLES_HERE + 1, "no two are the same"


def test_the_manifest_tells_what_it_is(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    first = manifest.pop("first")
    assert manifest == {
        "benchmark": "resnet50",
        "kind": "synthetic",
        "format": "jpeg",
        "shape": None,
        "size": "quick",
        "version": 1,
        "samples": SAMPLES_HERE,
        "classes": CLASSES,
        "seed": 0,
        "bytes": sum(path.stat().st_size for path in folder.rglob("*.JPEG")),
        "sha256": hashlib.sha256((folder / first).read_bytes()).hexdigest(),
    }
    assert first == "train/n00000000/n00000000_0.JPEG"


@pytest.mark.slow
def test_everybody_may_read_what_the_umask_allows(folder, tmp_path):
    old = os.umask(0o022)
    try:
        write(tmp_path / "set")
    finally:
        os.umask(old)
    assert (tmp_path / "set").stat().st_mode & 0o777 == 0o755
    assert next((tmp_path / "set").rglob("*.JPEG")).stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
def test_the_class_shows(folder):
    """The nearest mean colour already names the class of most pictures, also of those it was not taken from."""
    data = open_folder(str(folder), image_size=64, augment=True, seed=0)
    assert (data.kind, data.classes, len(data)) == ("synthetic", CLASSES, SAMPLES_HERE)
    colours = np.array([data[(0, index)][0].numpy().mean((0, 1)) for index in range(len(data))])
    colours -= colours.mean(1, keepdims=True)  # the brightness says nothing
    labels = np.array([data[(0, index)][1] for index in range(len(data))])
    even = np.arange(len(data)) % 2 == 0
    means = np.array([colours[even & (labels == label)].mean(0) for label in range(CLASSES)])
    guesses = ((colours[~even, None] - means) ** 2).sum(2).argmin(1)
    assert (guesses == labels[~even]).mean() > 0.8


@pytest.mark.parametrize(("samples", "classes"), [(5, 1), (17, 2)])
def test_a_class_has_eight_samples(tmp_path, samples, classes):
    said = []
    manifest = write_set(str(tmp_path / "set"), recipe("quick", samples, 0), processes=1, on_space=said.append)
    assert (manifest.samples, manifest.classes) == (samples, classes)
    assert len(said) == 1
    assert f"{samples} files need 0.0" in said[0]
    assert "GB free" in said[0]
    again = write_set(str(tmp_path / "set"), recipe("quick", samples, 0), processes=1, on_space=said.append)
    assert again == manifest
    assert len(said) == 1, "what is there needs no space"


def test_sizes():
    assert SAMPLES == {"smoke": 64, "quick": 2048, "subset": 2048}
    assert [recipe(size, None, 0).samples for size in SAMPLES] == [64, 2048, 2048]


# --- what is there already -------------------------------------------------------------------------------------------


def test_a_set_that_is_there_is_left_alone(tmp_path):
    manifest = write(tmp_path / "set")
    before = [(path, path.stat().st_mtime_ns) for path in sorted((tmp_path / "set").rglob("*"))]
    assert write(tmp_path / "set", processes=2) == manifest
    assert [(path, path.stat().st_mtime_ns) for path in sorted((tmp_path / "set").rglob("*"))] == before


@pytest.mark.parametrize("other", [{"samples": 7}, {"classes": 2}, {"seed": 1}])
def test_another_set_is_not_overwritten(tmp_path, other):
    write(tmp_path / "set")
    before = digests(tmp_path / "set")
    with pytest.raises(ImpossibleRequest) as refused:
        write(tmp_path / "set", **other)
    held = "6 samples in 3 classes, jpeg, seed 0, generator 1"
    assert f"{tmp_path}/set holds another set ({held}) than is asked for (" in str(refused.value)
    samples, seed = other.get("samples", 6), other.get("seed", 0)
    words = f"--size quick --samples {samples} --seed {seed} --format jpeg"
    assert str(refused.value).endswith(f"python -m models data resnet50 --data-dir {tmp_path}/set-{samples} {words}")
    assert refused.value.exit_code == 78
    assert digests(tmp_path / "set") == before


@pytest.mark.parametrize("content", ["file", "folder", "foreign", "broken"])
def test_anything_else_is_not_overwritten(tmp_path, content):
    place = tmp_path / "my data"
    if content == "file":
        place.write_text("text")
    else:
        (place / "train").mkdir(parents=True)
    if content in ("foreign", "broken"):
        (place / "manifest.json").write_text('{"benchmark": "deepcam"}' if content == "foreign" else "{")
    with pytest.raises(ImpossibleRequest, match=r"my data holds something that is no .*--data-dir '.*my data-6'"):
        write(place)
    assert place.is_file() or (place / "train").is_dir()


def test_a_set_that_was_damaged_is_not_taken_for_whole(tmp_path):
    write(tmp_path / "set")
    (tmp_path / "set/train/n00000001/n00000001_4.JPEG").unlink()
    again = rf"rm -r {tmp_path}/set && python -m models data resnet50 --data-dir {tmp_path}/set"
    with pytest.raises(DataMissing, match=f"holds 5 samples in 3 classes .* says 6 samples in 3.*{again}"):
        write(tmp_path / "set")
    (tmp_path / "set/train/n00000001/n00000001_4.JPEG").write_bytes(b"text")
    (tmp_path / "set/train/n00000000/n00000000_0.JPEG").write_bytes(b"text")
    with pytest.raises(DataCorrupt, match=f"sha256 differs.*{again}"):
        write(tmp_path / "set")


def test_an_empty_folder_and_a_link_are_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    (tmp_path / "disk").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "disk" / "set")
    write(tmp_path / "linked")
    assert digests(tmp_path / "empty") == digests(tmp_path / "linked") == digests(tmp_path / "disk" / "set")


# --- what cannot be written ------------------------------------------------------------------------------------------


def test_a_disk_that_is_too_small_is_refused_before_the_first_file(tmp_path):
    with pytest.raises(ImpossibleRequest, match=r"1,000,000,000 files need 130,000\.00 GB, .* has .* GB free: give"):
        write(tmp_path / "a" / "set", samples=10**9)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("samples", "processes"), [(6, 1), pytest.param(70, 2, marks=pytest.mark.slow)])
def test_a_disk_that_fills_up_leaves_nothing(tmp_path, small_files, samples, processes):
    with pytest.raises(ImpossibleRequest, match=r"writing .*set failed, nothing was left there \(File too large\)"):
        write(tmp_path / "set", samples=samples, processes=processes)
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ImpossibleRequest, match=r"file cannot be written to \(.*\): give another --data-dir"):
        write(tmp_path / "file" / "set")
    with pytest.raises(ImpossibleRequest, match=r"/ is a mount point, .* give a folder below it, --data-dir /set"):
        publish.check_space("/", 1, 1)


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"classes": 0}, {"classes": 7}, {"seed": -1}, {"processes": 0}])
def test_requests_that_make_no_set(tmp_path, wrong):
    with pytest.raises(ImpossibleRequest, match="make no set"):
        write(tmp_path / "set", **wrong)


DIES = "import os\n\ndef die(part, index):\n    return 1 if index < 70 else os.kill(os.getpid(), 9)\n"


@pytest.mark.slow
def test_a_process_that_is_killed_is_told(tmp_path, monkeypatch):
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.syspath_prepend(tmp_path)
    die = importlib.import_module("dies").die
    with pytest.raises(CommandError, match=r"ended with exit code -9 .* try again with --processes 1"):
        publish.publish(str(tmp_path / "sets" / "set"), lambda part: publish.write_files(part, die, 74, 2, print))
    assert list((tmp_path / "sets").iterdir()) == []


# --- more than one writer --------------------------------------------------------------------------------------------

WRITER = """
import sys
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
folder, samples, processes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
write_set(folder, recipe_of(samples, 3, 0), processes=processes)
"""


def writer(folder: Path, samples: int, processes: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(samples), str(processes)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_two_writers_at_once_end_with_one_good_set(tmp_path):
    writers = [writer(tmp_path / "set", 40) for _ in range(2)]
    assert [process.communicate(timeout=60)[1] for process in writers] == ["", ""]
    assert [process.returncode for process in writers] == [0, 0]
    assert beside(tmp_path / "set") == []
    assert len(open_folder(str(tmp_path / "set"), image_size=64, augment=False, seed=0)) == 40


def running(process: subprocess.Popen[str], folder: Path) -> tuple[Path, list[int]]:
    """The folder that a writer fills, once each of its two processes does, and they."""
    for index in (0, 1):
        file = f".{folder.name}.part-*/{recipe_of(100_000, 3, 0).name(index)}"
        until(lambda file=file: list(folder.parent.glob(file)), f"process {index} does not write")
    (part,) = folder.parent.glob(f".{folder.name}.part-*")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return part, [int(pid) for pid in children.split()]


def wait_gone(pids: list[int]) -> None:
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "writers end when nobody listens")


@pytest.mark.slow
def test_a_killed_writer_leaves_no_process_and_no_set(tmp_path):
    process = writer(tmp_path / "set", 100_000, processes=2)
    part, children = running(process, tmp_path / "set")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert len(children) >= 2
    wait_gone(children)
    assert not (tmp_path / "set").exists()
    said: list[str] = []
    write(tmp_path / "set", on_space=said.append)
    assert said[0].endswith(f"free their space: rm -r {part}")
    assert beside(tmp_path / "set") == [part.name], "a writer on another machine may still fill it"


@pytest.mark.slow
def test_an_interrupted_writer_cleans_up(tmp_path):
    process = writer(tmp_path / "set", 100_000, processes=2)
    _, children = running(process, tmp_path / "set")
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all of them
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert list(tmp_path.iterdir()) == []
    wait_gone(children)


def test_a_set_that_appears_meanwhile_and_is_none_is_refused(tmp_path):
    def progress(done: int, total: int) -> None:
        (tmp_path / "set" / "x").mkdir(parents=True, exist_ok=True)

    with pytest.raises(ImpossibleRequest, match="holds something that is no synthetic set"):
        write(tmp_path / "set", progress=progress)
    assert beside(tmp_path / "set") == []
