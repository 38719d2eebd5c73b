"""A DeepCAM folder of HDF5 files, real or synthetic, as a data set of climate images and their pixels' classes."""

from __future__ import annotations

import os
import threading
from typing import Any, Optional, Tuple

import numpy as np
import torch

from models.data import hdf5, weather
from models.data.advice import Advice
from models.data.file_list import FileList, names_in, printable
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_deepcam import SHAPES
from models.data.thread_loader import sample
from models.errors import DataCorrupt, DataMissing
from models.settings import Shape, shape_text

DATA = "climate/data"
LABELS = "climate/labels_0"
STATS = "stats.h5"
MINIMUM = "climate/minval"
MAXIMUM = "climate/maxval"
CHANNELS = tuple(channel.name for channel in weather.CHANNELS)
CLASSES = ("background", "tropical cyclone", "atmospheric river")
SUFFIXES = (b".h5", b".hdf5")
ADVICE = Advice("deepcam", "a DeepCAM set", f"train/*.h5 with {STATS}")

Blank = Tuple[Tuple[Shape, torch.dtype], Tuple[Shape, torch.dtype]]

# Each thread keeps memory for a sample's labels as the file has them: new memory would cost as much as the reading.
_thread = threading.local()


class DeepCamData:
    """A map-style data set indexed by (epoch, index): an image and the class of each of its pixels.

    The image is float32 of height x width x 16, the classes uint8 of height x width. Nothing is normalised and the
    channels come last, as in the file: both belong on the device.

    kind                "synthetic" if there is a manifest, else "real"
    bytes               sum of the samples' files by the manifest; None for a real set
    decoder             e.g. "h5py 3.16.0, HDF5 2.0.0"
    transforms          None: the host changes only the labels' dtype
    warnings            for the reader of the result: what makes reading slow, by the first file
    minimum, maximum    of each channel over the set, float32 tensors of 16
    blank               shape and dtype of one image and of its classes
    """

    format = "hdf5"
    transforms: Optional[str] = None

    def __init__(self, folder: str, files: FileList, manifest: Optional[Manifest], shape: Shape) -> None:
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
        """Return the path of sample `index`."""
        return os.fsdecode(self._files.path(index))

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, torch.Tensor]:
        """Raises as fill."""
        return sample(self, key[1])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        """Read sample `index` into two contiguous CPU tensors, as `blank` says. Several threads may do so at once.

        Raises DataMissing for a file that is gone, DataCorrupt for one that cannot be read, has another shape or dtype,
        or labels other than 0, 1 and 2. NaNs pass: to look for them would take as long again as the reading, and the
        loss shows them.
        """
        path = self._files.path(index)
        classes = y.numpy()
        hdf5.read(path, {DATA: x, LABELS: lambda stored: _label_buffer(stored, classes.shape)})
        _to_classes(path, _thread.labels, classes)


def open_folder(folder: str, *, shape: Shape) -> DeepCamData:
    """Open `folder`/train/*.h5 with `folder`/stats.h5; `shape` is the height and width that the images must have.

    Raises DataMissing, DataCorrupt or ImpossibleRequest; each says what to type.
    """
    folder = os.fspath(folder)
    manifest = read_manifest(folder, "deepcam")
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        # some copies of the real set hold stats.h5 among the samples
        files = FileList.of(train, [name for name in names_in(train, SUFFIXES) if name != os.fsencode(STATS)])
    except OSError as error:
        raise ADVICE.unreadable_set(folder, error) from None
    if not len(files):
        raise DataMissing(f"{printable(train)} holds no *.h5: {ADVICE.use(folder)}")
    if manifest:
        check_against(manifest, len(files), folder)
    return DeepCamData(folder, files, manifest, tuple(shape))


def read_stats(folder: str) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest value of each channel over the whole set, by its stats.h5.

    Raises DataMissing if there is no such file, DataCorrupt if its values are no range.
    """
    path = os.path.join(folder, STATS)
    if not os.path.exists(path):
        path = os.path.join(folder, "train", STATS)
    if not os.path.exists(path):
        raise DataMissing(
            f"{printable(os.path.join(folder, STATS))} is missing; it lies beside train/ and holds each channel's "
            f"{MINIMUM} and {MAXIMUM}: copy it from where the set came from, {ADVICE.another(folder)}"
        )
    minimum = np.empty(len(CHANNELS), np.float32)
    maximum = np.empty(len(CHANNELS), np.float32)
    hdf5.read(path, {MINIMUM: minimum, MAXIMUM: maximum})
    for name, low, high in zip(CHANNELS, minimum.tolist(), maximum.tolist()):
        if not -np.inf < low < high < np.inf:
            raise DataCorrupt(
                f"{printable(path)}: channel {name} goes from {low:g} to {high:g}, which is no range: copy it again "
                f"from where the set came from, {ADVICE.another(folder)}"
            )
    return torch.from_numpy(minimum), torch.from_numpy(maximum)


def _check_first(folder: str, path: bytes, shape: Shape) -> Tuple[str, ...]:
    """Return what makes reading the first file slow. Raises DataMissing if its images are of another shape."""
    data, labels = hdf5.describe(path, (DATA, LABELS))
    if data.shape[2:] != (len(CHANNELS),):
        raise DataMissing(f"{printable(path)}: {DATA} is {data}, not height x width x 16: {ADVICE.use(folder)}")
    if data.shape[:2] != shape:
        raise ADVICE.other_shape(folder, path, shape_text(data.shape[:2]), shape, SHAPES)
    slow = []
    if not data.lies_as(np.float32):
        slow.append(DATA)
    if labels.offset is None:
        slow.append(LABELS)
    return tuple(f"{hdf5.SLOW}: {name} of {printable(path)}" for name in slow)


# --- labels ----------------------------------------------------------------------------------------------------------


def _label_buffer(stored: hdf5.StoredArray, shape: Shape) -> Any:
    """Return this thread's memory for labels of the dtype that they have in the file."""
    dtype = stored.dtype if stored.dtype.kind in "iufb" else np.dtype(np.uint8)
    labels = getattr(_thread, "labels", None)
    if labels is None or (labels.shape, labels.dtype) != (shape, dtype):
        labels = np.empty(shape, dtype)
        _thread.labels = labels
    return labels


def _to_classes(path: bytes, labels: Any, classes: Any) -> None:
    """Copy labels to the classes' dtype. Raises DataCorrupt for labels other than 0, 1 and 2."""
    if labels.dtype.kind == "f":
        are_classes = bool(((labels == 0) | (labels == 1) | (labels == 2)).all())
    else:  # one comparison for each: read as unsigned, a negative number is a large one
        unsigned = labels.view(f"{labels.dtype.byteorder}u{labels.itemsize}")
        are_classes = unsigned.max() < len(CLASSES)
    if not are_classes:
        others = labels[(labels != 0) & (labels != 1) & (labels != 2)]
        meaning = ", ".join(f"{number} ({name})" for number, name in enumerate(CLASSES))
        raise DataCorrupt(
            f"{printable(path)}: {others.size:,} values of {LABELS} are none of {meaning}, the first is {others[0]}: "
            f"replace the file"
        )
    np.copyto(classes, labels, casting="unsafe")
