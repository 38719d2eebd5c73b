"""A folder that holds no data set of a benchmark, or another one: the same is said of it, whichever benchmark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from models.data import cosmoflow, deepcam, imagenet
from models.data.advice import Advice
from models.data.synthetic import generator_of, write_set
from models.errors import CommandError, DataCorrupt, DataMissing

OPEN: dict[str, Callable[[str], Any]] = {
    "cosmoflow": partial(cosmoflow.open_folder, shape=(32, 32, 32)),
    "deepcam": partial(deepcam.open_folder, shape=(96, 144)),
    "resnet50": partial(imagenet.open_folder, image_size=32, augment=False, seed=1),
}
ADVICES: dict[str, Advice] = {"cosmoflow": cosmoflow.ADVICE, "deepcam": deepcam.ADVICE, "resnet50": imagenet.ADVICE}
NO_FILES = {"cosmoflow": "no *.tfrecord, *.hdf5 or *.h5", "deepcam": "no *.h5", "resnet50": "no class folders"}

pytestmark = pytest.mark.parametrize("name", OPEN)


def refused(name: str, folder: Path, error: type[CommandError] = DataMissing) -> str:
    with pytest.raises(error) as said:
        OPEN[name](str(folder))
    return str(said.value)


@pytest.mark.parametrize(("ending", "size"), [("-smoke", "smoke"), ("-subset", "subset"), ("", "quick")])
def test_there_is_nothing(name: str, ending: str, size: str, tmp_path: Path) -> None:
    folder = f"{tmp_path}/set{ending}"
    command = f"python -m models data {name} --data-dir {folder} --size {size}"
    assert refused(name, Path(folder)) == f"there is no data set at {folder}. Make a synthetic one: {command}"


def test_it_holds_something_else(name: str, tmp_path: Path) -> None:
    advice = ADVICES[name]
    command = f"python -m models data {name} --data-dir {tmp_path}-synthetic --size quick"
    use = f"give --data-dir the folder of {advice.name}, or make a synthetic set elsewhere: {command}"
    assert refused(name, tmp_path) == f"{tmp_path} is not {advice.name}, it holds no {advice.holds}: {use}"
    (tmp_path / "file").write_text("text")
    assert "file is not " in refused(name, tmp_path / "file")
    train = tmp_path / "train"
    train.mkdir()
    assert refused(name, tmp_path).startswith(f"{train} holds {NO_FILES[name]}")
    assert refused(name, train) == f"{train} holds no folder train/: give the folder above, --data-dir {tmp_path}"
    train.rmdir()
    train.symlink_to(train)
    assert refused(name, tmp_path) == f"{train} cannot be read: Too many levels of symbolic links"


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("{", DataCorrupt, "manifest.json cannot be read"),
        ("[]", DataCorrupt, "manifest.json cannot be read"),
        ('{"benchmark": "NAME"}', DataCorrupt, "manifest.json lacks the key 'kind'"),
        ('{"benchmark": "mine"}', DataMissing, "is a data set of benchmark 'mine', not of NAME"),
    ],
)
def test_its_manifest_is_another(name: str, text: str, error: type[CommandError], why: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text.replace("NAME", name))
    assert why.replace("NAME", name) in refused(name, tmp_path, error)


def test_a_synthetic_set_that_was_changed(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "a set"
    generator = generator_of(name)
    manifest = write_set(str(folder), generator.recipe("smoke", 3, 0, generator.FORMATS[0]), processes=1)
    data = OPEN[name](str(folder))
    assert (data.kind, data.bytes, len(data)) == ("synthetic", manifest.bytes, 3)
    first, *_, last = (Path(data.path(index)) for index in range(3))
    last.unlink()
    with pytest.raises(DataMissing, match=r"was there when the set was opened and now cannot be read \(No such file"):
        data[(0, 2)]
    command = f"python -m models data {name} --data-dir '{folder}' {manifest.options}"
    again = f"write it again: rm -r '{folder}' && {command}"
    said = refused(name, folder)
    assert "a set holds 2 samples" in said
    assert "manifest.json says 3 samples" in said
    assert said.endswith(again)
    last.touch()
    first.write_bytes(b"text")
    said = refused(name, folder, DataCorrupt)
    assert f"{first} is not the file that manifest.json describes" in said
    assert said.endswith(again)
