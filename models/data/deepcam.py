"""A DeepCAM folder of HDF5 files, real or synthetic, as a data set of climate images and their pixels' classes."""

from __future__ import annotations

import os
import threading
from typing import Any, Optional, Tuple

import numpy as np
import torch

from models.data import hdf5, weather
from models.data.advice import Advice
from models.data.files import Files, names_in, show
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_deepcam import SHAPES
from models.data.threads import sample
from models.errors import DataCorrupt, DataMissing
from models.settings import Shape, by

DATA, LABELS = "climate/data", "climate/labels_0"
STATS, MINIMUM, MAXIMUM = "stats.h5", "climate/minval", "climate/maxval"
CHANNELS = tuple(channel.name for channel in weather.CHANNELS)
CLASSES = ("background", "tropical cyclone", "atmospheric river")
SUFFIXES = (b".h5", b".hdf5")
ADVICE = Advice("deepcam", "a DeepCAM set", f"train/*.h5 with {STATS}")

Blank = Tuple[Tuple[Shape, torch.dtype], Tuple[Shape, torch.dtype]]

_thread = (
    threading.local()
)  # a plane of labels as the file has them, kept: new memory would cost as much as the reading


class DeepCam:
    """A map-style data set indexed by (epoch, index): (float32 image of height x width x 16, uint8 classes of height x
    width). Nothing is normalised and the channels come last, as in the file: both belong on the device.

    kind                "synthetic" when a manifest says so, else "real"
    bytes               sum of the samples' files by the manifest; None for a real set
    decoder             e.g. "h5py 3.16.0, HDF5 2.0.0"
    transforms          None: the host changes nothing but the labels' dtype
    warnings            what makes reading slow, by the first file
    minimum, maximum    of each channel over the set, float32 tensors of 16
    blank               shape and dtype of one image and of its classes
    """

    format = "hdf5"
    transforms: Optional[str] = None

    def __init__(self, folder: str, files: Files, manifest: Optional[Manifest], shape: Shape) -> None:
        self._files = files
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.decoder: Optional[str] = hdf5.versions()
        self.blank: Blank = (((*shape, len(CHANNELS)), torch.float32), (tuple(shape), torch.uint8))
        self.warnings = _check_first(folder, files.path(0), shape)
        self.minimum, self.maximum = read_stats(folder)

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> str:
        """Where sample `index` lies."""
        return os.fsdecode(self._files.path(index))

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, torch.Tensor]:
        """Raises as fill."""
        return sample(self, key[1])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        """Read sample `index` into two contiguous CPU tensors, as `blank` says; any number of threads may.

        Raises DataMissing for a file that is gone, DataCorrupt for one that cannot be read, has another shape or dtype,
        or labels other than 0, 1 and 2. NaNs pass: to look for them would take as long again as the reading, and the
        loss shows them.
        """
        path = self._files.path(index)
        classes = y.numpy()
        hdf5.read(path, {DATA: x, LABELS: lambda found: _plane(found, classes.shape)})
        _to_classes(path, _thread.plane, classes)


def open_folder(folder: str, *, shape: Shape) -> DeepCam:
    """Open `folder`/train/*.h5 with `folder`/stats.h5; `shape` is the height and width that the images must have.

    Raises DataMissing, DataCorrupt or Impossible; each says what to type.
    """
    folder = os.fspath(folder)
    manifest = read_manifest(folder, "deepcam")
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        # copies are about that hold stats.h5 among the samples
        files = Files.of(train, [name for name in names_in(train, SUFFIXES) if name != os.fsencode(STATS)])
    except OSError as error:
        raise ADVICE.unreadable(folder, error) from None
    if not len(files):
        raise DataMissing(f"{show(train)} holds no *.h5: {ADVICE.use(folder)}")
    if manifest:
        check_against(manifest, len(files), folder)
    return DeepCam(folder, files, manifest, tuple(shape))


def read_stats(folder: str) -> Tuple[torch.Tensor, torch.Tensor]:
    """The smallest and the largest value of each channel over the whole set, by its stats.h5.

    Raises DataMissing where there is none, DataCorrupt where they are no range.
    """
    places = [os.path.join(folder, STATS), os.path.join(folder, "train", STATS)]
    path = next(filter(os.path.exists, places), "")
    if not path:
        raise DataMissing(
            f"{show(places[0])} is missing; it lies beside train/ and holds each channel's {MINIMUM} and {MAXIMUM}: "
            f"copy it from where the set came from, {ADVICE.another(folder)}"
        )
    minimum, maximum = np.empty(len(CHANNELS), np.float32), np.empty(len(CHANNELS), np.float32)
    hdf5.read(path, {MINIMUM: minimum, MAXIMUM: maximum})
    for name, low, high in zip(CHANNELS, minimum.tolist(), maximum.tolist()):
        if not -np.inf < low < high < np.inf:
            raise DataCorrupt(
                f"{show(path)}: channel {name} goes from {low:g} to {high:g}, which is no range: copy it again from "
                f"where the set came from, {ADVICE.another(folder)}"
            )
    return torch.from_numpy(minimum), torch.from_numpy(maximum)


def _check_first(folder: str, path: bytes, shape: Shape) -> Tuple[str, ...]:
    """What is slow about the first file. Raises DataMissing when its images are of another shape."""
    data, labels = hdf5.describe(path, (DATA, LABELS))
    if data.shape[2:] != (len(CHANNELS),):
        raise DataMissing(f"{show(path)}: {DATA} is {data}, not height x width x 16: {ADVICE.use(folder)}")
    if data.shape[:2] != shape:
        raise ADVICE.other_shape(folder, path, by(data.shape[:2]), shape, SHAPES)
    slow = [] if data.lies_as(np.float32) else [DATA]
    slow += [LABELS] if labels.offset is None else []
    return tuple(f"{hdf5.SLOW}: {name} of {show(path)}" for name in slow)


# --- labels ----------------------------------------------------------------------------------------------------------


def _plane(found: hdf5.Array, shape: Shape) -> Any:
    """This thread's plane for labels as they are in the file, whatever number they are."""
    dtype = found.dtype if found.dtype.kind in "iufb" else np.dtype(np.uint8)
    plane = getattr(_thread, "plane", None)
    if plane is None or (plane.shape, plane.dtype) != (shape, dtype):
        plane = _thread.plane = np.empty(shape, dtype)
    return plane


def _to_classes(path: bytes, labels: Any, classes: Any) -> None:
    order, kind, size = labels.dtype.byteorder, labels.dtype.kind, labels.itemsize
    if kind == "f":
        good = bool(((labels == 0) | (labels == 1) | (labels == 2)).all())
    else:  # one look at each: a number below zero is a large one without its sign
        good = labels.view(f"{order}u{size}").max() < len(CLASSES)
    if not good:
        others = labels[(labels != 0) & (labels != 1) & (labels != 2)]
        meaning = ", ".join(f"{number} ({name})" for number, name in enumerate(CLASSES))
        raise DataCorrupt(
            f"{show(path)}: {others.size:,} values of {LABELS} are none of {meaning}, the first is {others[0]}: "
            f"replace the file"
        )
    np.copyto(classes, labels, casting="unsafe")
