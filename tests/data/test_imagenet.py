"""An ImageNet folder is read to the same pixels everywhere, and what is wrong with one is said in words."""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from models.data import jpeg
from models.data.imagenet import open_folder
from models.data.process_loader import ProcessLoader
from models.data.sampling import StepSampler
from models.data.skip_corrupt import SkipCorrupt
from models.errors import DataCorrupt, DataMissing, ImpossibleRequest
from tests.data.sets import open_below

ROOT = Path(__file__).resolve().parents[2]


def photo(seed: int, size: tuple[int, int] = (160, 120), mode: str = "RGB") -> Image.Image:
    """A smooth random picture: a JPEG of it looks like one of a photograph."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@functools.lru_cache
def picture(seed: int) -> bytes:
    return encoded(photo(seed))


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / "train" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of four pictures."""
    for number in range(12):
        put(tmp_path / "set", f"n0000000{number % 3}/n_{number}.JPEG", picture(number))
    return tmp_path / "set"


def opened(folder: Path, **options: object):
    return open_folder(str(folder), **{"image_size": 64, "augment": True, "seed": 1, **options})


def skipping(folder: Path, **options: object) -> SkipCorrupt:
    return SkipCorrupt(opened(folder, **options))


# --- what is read ----------------------------------------------------------------------------------------------------


def test_a_real_folder(folder):
    data = opened(folder)
    assert (len(data), data.classes, data.kind, data.bytes, data.format) == (12, 3, "real", None, "jpeg")
    pixels, label = data[(0, 5)]
    assert (pixels.dtype, tuple(pixels.shape), pixels.is_contiguous(), label) == (torch.uint8, (64, 64, 3), True, 1)
    assert [data[(0, index)][1] for index in range(12)] == [0] * 4 + [1] * 4 + [2] * 4
    assert data.path(5) == str(folder / "train/n00000001/n_10.JPEG"), "n_1, n_10, n_4, n_7: sorted as text"


def test_a_sample_depends_on_seed_epoch_and_index_only(folder):
    data = opened(folder)
    forwards = [data[(0, index)][0] for index in range(12)]
    backwards = [opened(folder)[(0, index)][0] for index in reversed(range(12))]
    assert all(torch.equal(a, b) for a, b in zip(forwards, reversed(backwards), strict=True))
    assert not torch.equal(data[(0, 0)][0], data[(1, 0)][0])
    assert not torch.equal(data[(0, 0)][0], opened(folder, seed=2)[(0, 0)][0])


def test_the_evaluation_transform_is_resize_and_centre_cut(folder):
    data = opened(folder, image_size=56, augment=False, transforms="pillow")
    assert torch.equal(data[(0, 0)][0], data[(9, 0)][0])
    image = Image.open(data.path(0)).resize((85, 64), Image.Resampling.BILINEAR)  # short side 56 * 256 / 224
    assert np.array_equal(data[(0, 0)][0], np.asarray(image.crop((14, 4, 70, 60))))


def test_files_that_real_copies_hold_beside_pictures_are_left_out(folder):
    put(folder, "n00000000/.n_0.JPEG", b"hidden")
    put(folder, "n00000000/readme.txt", b"text")
    put(folder, ".cache/n_0.JPEG", b"hidden")
    (folder / "train" / "n00000000" / "folder.JPEG").mkdir()
    (folder / "train" / "list.txt").write_text("text")
    assert (len(opened(folder)), opened(folder).classes) == (12, 3)


def test_names_may_be_anything_that_a_file_system_takes(tmp_path):
    home = tmp_path / "Größe 1 'x'"
    put(home, "n00000000/naïve 図.jpg", encoded(photo(1)))
    put(home, "n00000001/a.JPG", encoded(photo(2)))
    Path(os.fsdecode(os.fsencode(home / "train/n00000001") + b"/\xff.JPEG")).write_bytes(b"text")
    data = opened(home)
    assert [data[(0, index)][1] for index in (0, 1)] == [0, 1]
    with pytest.raises(DataCorrupt, match=r"\\xff\.JPEG is no readable JPEG"):
        data[(0, 2)]


def test_links_are_followed(folder, tmp_path):
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "train").symlink_to(folder / "train")
    (folder / "train" / "n00000003").symlink_to(folder / "train" / "n00000000")
    (folder / "train" / "n00000001" / "n_z.JPEG").symlink_to(folder / "nowhere")
    data = opened(tmp_path / "linked")
    assert (len(data), data.classes) == (17, 4)
    with pytest.raises(DataMissing, match=r"n_z\.JPEG .*No such file"):
        data[(0, 8)]


# --- odd JPEGs, which real ImageNet has ------------------------------------------------------------------------------

ODD = {
    "grayscale": lambda: encoded(photo(3, mode="L")),
    "cmyk": lambda: encoded(photo(3, mode="CMYK")),
    "png": lambda: encoded(photo(3), "PNG"),
    "png with transparency": lambda: encoded(photo(3, mode="RGBA"), "PNG"),
    "png with a palette": lambda: encoded(photo(3, mode="P"), "PNG"),
    "trailing bytes": lambda: encoded(photo(3)) + b"\0" * 100,
    "one pixel": lambda: encoded(photo(3, size=(1, 1))),
    "a column": lambda: encoded(photo(3, size=(1, 700))),
}
needs_simplejpeg = pytest.mark.skipif(
    bool(jpeg.simplejpeg_problem()), reason="simplejpeg is not installed (pip install simplejpeg)"
)
DECODERS = [
    "pillow",
    pytest.param("simplejpeg", marks=needs_simplejpeg),
]


@pytest.mark.parametrize("augment", [True, False])
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("odd", ODD)
def test_odd_pictures_come_out_as_rgb(tmp_path, odd, decoder, augment):
    path = put(tmp_path, "n00000000/odd.JPEG", ODD[odd]())
    data = opened(tmp_path, augment=augment, decoder=decoder, transforms="pillow")
    pixels, _ = data[(0, 0)]
    assert (tuple(pixels.shape), pixels.dtype) == ((64, 64, 3), torch.uint8)
    with Image.open(path) as image:
        truth = np.asarray(image.convert("RGB"), dtype=float).mean((0, 1))
    assert np.abs(pixels.numpy().mean((0, 1)) - truth).max() < 60, "roughly the colours of the whole picture"


@functools.lru_cache
def corruptions() -> dict[str, tuple[bytes, str]]:
    whole = encoded(photo(4, size=(500, 375)))
    return {
        "empty": (b"", "it is empty"),
        "text": (b"404: Not Found", "it begins with b'404: Not'"),
        "truncated": (whole[: len(whole) // 2], "truncated"),
        "header only": (whole[:30], "JPEG"),
        "two bytes": (whole[:2], "it begins with"),
        "truncated png": (encoded(photo(4), "PNG")[:2000], "truncated"),
        "gif": (encoded(photo(4), "GIF"), "it begins with b'GIF8"),
    }


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("kind", corruptions())
def test_a_corrupt_file_is_named(folder, kind, decoder):
    content, why = corruptions()[kind]
    path = put(folder, "n00000001/n_1.JPEG", content)
    with pytest.raises(DataCorrupt) as corrupt:
        opened(folder, decoder=decoder)[(0, 4)]
    assert str(corrupt.value).startswith(f"{path} is no readable JPEG (")
    assert why in str(corrupt.value)
    assert "--skip-corrupt" in str(corrupt.value)


def test_no_file_stays_open(folder):
    put(folder, "n00000001/n_1.JPEG", b"text")
    data = skipping(folder)
    for index in range(12):
        data[(0, index)]
    assert open_below(folder) == []


# --- the two decoders, the three kinds of pixel operations -----------------------------------------------------------


@needs_simplejpeg
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}])
def test_simplejpeg_decodes_to_the_same_bits_as_pillow(tmp_path, options):
    put(tmp_path, "n00000000/a.JPEG", encoded(photo(5, size=(500, 333)), **options))
    pillow = opened(tmp_path, decoder="pillow", transforms="pillow")
    other = opened(tmp_path, decoder="simplejpeg", transforms="pillow")
    assert all(torch.equal(pillow[(epoch, 0)][0], other[(epoch, 0)][0]) for epoch in range(5))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("augment", [True, False])
def test_torch_resizes_to_within_one_level_of_pillow(tmp_path, decoder, augment):
    put(tmp_path, "n00000000/a.JPEG", encoded(photo(5, size=(500, 333))))
    options = {"image_size": 224, "augment": augment, "decoder": decoder}
    pillow, other = (opened(tmp_path, transforms=name, **options) for name in ("pillow", "torch"))
    for epoch in range(10):
        difference = (pillow[(epoch, 0)][0].int() - other[(epoch, 0)][0].int()).abs()
        assert difference.max() <= 1


WITH_TORCHVISION = """
import sys, torch
from models.data.imagenet import open_folder
from models.data.process_loader import ProcessLoader
try:
    try:
        import torchvision
    except RuntimeError:  # its wheel beside a torch without CUDA: two operators lack their declaration, nothing else
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    raise SystemExit
for decoder in ("pillow", *sys.argv[2:]):
    for size, augment in ((64, True), (224, True), (64, False), (224, False)):
        options = {"image_size": size, "augment": augment, "seed": 3, "decoder": decoder}
        sets = [open_folder(sys.argv[1], transforms=name, **options) for name in ("pillow", "torchvision")]
        assert sets[1].transforms.startswith("torchvision 0."), sets[1].transforms
        for epoch in range(3):
            for index in range(len(sets[0])):
                a, b = sets[0][(epoch, index)], sets[1][(epoch, index)]
                assert torch.equal(a[0], b[0]) and a[1] == b[1], (decoder, size, augment, epoch, index)
assert open_folder(sys.argv[1], image_size=64, augment=True, seed=3, decoder="pillow").transforms == sets[1].transforms
print("identical")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed (pip install torchvision)"
)
def test_torchvision_and_pillow_give_the_same_bits(folder):
    for number in range(4):
        put(folder, f"n00000000/n_{100 + number}.JPEG", encoded(photo(number, size=(500 - number, 333 + 55 * number))))
    decoders = [] if jpeg.simplejpeg_problem() else ["simplejpeg"]
    command = [sys.executable, "-c", WITH_TORCHVISION, str(folder), *decoders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if done.stdout != "identical\n":
        pytest.skip(f"torchvision does not import here: {done.stdout}")


@pytest.fixture
def broken_packages(tmp_path, monkeypatch):
    """A torchvision and a simplejpeg that are installed and cannot be imported."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "half.py").write_text("")
    (tmp_path / "torchvision" / "__init__.py").write_text("import torchvision.half\nraise RuntimeError('no nms')")
    (tmp_path / "simplejpeg.py").write_text("raise ImportError('libturbojpeg.so.0: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] in ("simplejpeg", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    problems = jpeg.simplejpeg_problem, jpeg.torchvision_problem
    for problem in problems:
        problem.cache_clear()
    yield
    for problem in problems:
        problem.cache_clear()


def test_without_torchvision_and_simplejpeg_pillow_does_it(folder, broken_packages):
    data = opened(folder)
    assert re.fullmatch(r"pillow [\d.]+ libjpeg(-turbo)? \S+", data.decoder)
    assert data.transforms == data.decoder.split(" libjpeg")[0]
    assert not [name for name in sys.modules if name.startswith("torchvision")], "half an import leaves nothing behind"
    with pytest.raises(ImpossibleRequest, match=r"simplejpeg cannot be used \(ImportError: libturbojpeg"):
        opened(folder, decoder="simplejpeg")
    with pytest.raises(ImpossibleRequest, match=r"torchvision cannot be imported \(RuntimeError: no nms\): unset"):
        opened(folder, transforms="torchvision")


def test_the_environment_chooses_and_a_slip_is_said(folder, monkeypatch):
    monkeypatch.setenv("HPC_ML_BENCH_DECODER", "pillow")
    monkeypatch.setenv("HPC_ML_BENCH_TRANSFORMS", "torch")
    data = opened(folder)
    assert data.decoder.startswith("pillow ")
    assert data.transforms == f"torch {torch.__version__}"
    monkeypatch.setenv("HPC_ML_BENCH_DECODER", "pilow")
    with pytest.raises(ImpossibleRequest, match="HPC_ML_BENCH_DECODER=pilow is unknown: use auto, pillow, simplejpeg"):
        opened(folder)


# --- where it cuts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (1, 1), (1, 500), (2000, 3), (64, 64)])
@pytest.mark.slow
def test_random_cuts_stay_within_the_bounds_of_the_reference(width, height):
    draw = random.Random(0).random
    cuts = [jpeg.random_cut(draw, width, height, 224) for _ in range(1000)]
    whole = 0
    for cut in cuts:
        assert cut.left >= 0 <= cut.top
        assert 0 < cut.width <= width - cut.left
        assert 0 < cut.height <= height - cut.top
        if (cut.width, cut.height) == (width, height):
            whole += 1
            continue
        assert cut.width * cut.height >= 0.1 * width * height
        assert 0.75 * cut.height - 0.5 <= cut.width <= 1.33 * cut.height + 0.5
    assert 0.4 < sum(cut.flip for cut in cuts) / len(cuts) < 0.6
    if min(width, height) > 50:
        assert whole < 10
        assert len(set(cuts)) > 900


def test_the_draws_are_pinned():
    """Whoever changes them changes what is trained, and must raise workload_version."""
    cuts = [jpeg.random_cut(jpeg.generator(7, 2, index).random, 500, 375, 224) for index in range(2)]
    assert cuts == [
        jpeg.Cut(246, 11, 194, 229, 224, 224, 0, 0, False),
        jpeg.Cut(249, 26, 221, 257, 224, 224, 0, 0, False),
    ]


@pytest.mark.parametrize(
    ("width", "height", "wide", "high", "x", "y"),
    [
        (500, 375, 341, 256, 58, 16),
        (375, 500, 256, 341, 16, 58),
        (100, 100, 256, 256, 16, 16),
        (1, 9, 256, 2304, 16, 1040),
    ],
)
def test_the_centre_cut_is_torchvisions(width, height, wide, high, x, y):
    assert jpeg.centre_cut(width, height, 224) == jpeg.Cut(0, 0, width, height, wide, high, x, y, False)


# --- in a loader -----------------------------------------------------------------------------------------------------


def batches(data, workers: int, start: str, count: int):
    sampler = StepSampler(len(data), local_batch=4, rank=0, world=1, accumulation=1, seed=0)
    loader = ProcessLoader(data, sampler, local_batch=4, workers=workers, start=start, pinned=False)
    return list(itertools.islice(loader, count))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # 3.12 dislikes fork beside any thread
@pytest.mark.parametrize(
    ("start", "workers"),
    [
        ("fork", 2),
        pytest.param("spawn", 1, marks=pytest.mark.slow),
        pytest.param("forkserver", 1, marks=pytest.mark.nightly("models/data/process_loader.py")),
    ],
)
def test_workers_give_the_same_batches_and_one_count_of_corrupt_files(folder, start, workers):
    put(folder, "n00000001/n_1.JPEG", b"text")
    put(folder, "n00000001/n_10.JPEG", b"")
    alone, shared = (skipping(folder, decoder="pillow") for _ in range(2))
    expected = batches(alone, 0, "fork", 6)
    for (pixels, labels), (same, too) in zip(expected, batches(shared, workers, start, 6), strict=True):
        assert torch.equal(pixels, same)
        assert torch.equal(labels, too)
    assert shared.skipped == alone.skipped == 2


def test_a_corrupt_file_gives_way_to_the_next_good_one(folder):
    put(folder, "n00000001/n_1.JPEG", b"text")
    put(folder, "n00000001/n_10.JPEG", b"")
    data = skipping(folder, augment=False)
    pixels, label = data[(0, 4)]
    assert torch.equal(pixels, data[(0, 6)][0])
    assert (label, data.skipped) == (1, 2)
    put(folder, "n00000002/n_8.JPEG", b"text")
    assert data[(3, 11)][1] == 0, "the last gives way to the first"


def test_a_set_of_corrupt_files_is_not_skipped_for_ever(tmp_path):
    for number in range(3):
        put(tmp_path, f"n00000000/{number}.JPEG", b"text")
    with pytest.raises(DataCorrupt, match=r"100 corrupt samples in a row, the last: .*1\.JPEG"):
        skipping(tmp_path)[(0, 1)]


# --- folders that are none -------------------------------------------------------------------------------------------


def test_an_empty_class(folder):
    (folder / "train" / "n00000003").mkdir()
    with pytest.raises(DataMissing, match=r"1 of 4 class folders hold no JPEG, the first is .*n00000003: complete"):
        opened(folder)


def test_another_imagenet(tmp_path):
    for number in range(1001):
        (tmp_path / "train" / f"n{number:08d}").mkdir(parents=True)
    with pytest.raises(DataMissing, match=r"train holds 1,001 classes, ImageNet-1k has 1,000"):
        opened(tmp_path)
