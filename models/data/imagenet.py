"""An ImageNet folder of JPEGs (train/<wnid>/*.JPEG), real or synthetic, as a data set of uint8 pixels and labels."""

from __future__ import annotations

import bisect
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

import torch
from PIL import UnidentifiedImageError
from PIL.Image import Image

from models.data import jpeg
from models.data.advice import Advice
from models.data.file_list import FileList, names_in, printable, read_file
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_resnet50 import MOST_CLASSES
from models.errors import DataCorrupt, DataMissing

ADVICE = Advice("resnet50", "an ImageNet", "train/<wnid>/*.JPEG")
SUFFIXES = (b".jpeg", b".jpg")
SCAN_THREADS = 4  # they hide the latency of a parallel file system; a local one needs none


class ImageNet(torch.utils.data.Dataset):
    """A map-style data set indexed by (epoch, index): (uint8 tensor of image_size x image_size x 3, label).

    The channels come last and nothing is normalised: both belong on the device, and uint8 is a quarter of the copy. The
    augmentation of a sample depends only on (seed, epoch, index).

    kind         "synthetic" if there is a manifest, else "real"
    format       "jpeg"
    warnings     for the reader of the result: none
    classes      how many there are; labels are the positions of the sorted class folders, as in torchvision
    bytes        sum of the JPEGs by the manifest; None for a real set, where it would need a stat of each file
    decoder      e.g. "pillow 13.0.0 libjpeg-turbo 3.2.0" (models/data/jpeg.py)
    transforms   e.g. "torchvision 0.28.0"
    blank        shape and dtype of one sample's pixels, and of its label
    """

    format = "jpeg"
    warnings: Tuple[str, ...] = ()

    def __init__(
        self,
        listing: ClassListing,
        manifest: Optional[Manifest],
        *,
        image_size: int,
        augment: bool,
        seed: int,
        decoder: str = "",
        transforms: str = "",
    ) -> None:
        self._listing = listing
        self._decoder = jpeg.choose_decoder(decoder)
        self._transforms = jpeg.choose_transforms(self._decoder, transforms)
        self.decoder, self.transforms = jpeg.versions(self._decoder, self._transforms)
        self.image_size = image_size
        self.augment = augment
        self.seed = seed
        self.blank = (((image_size, image_size, 3), torch.uint8), ((), torch.int64))
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.classes = len(listing.classes)

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, int]:
        """Raises DataMissing for a file that is gone, DataCorrupt for one that is no image."""
        epoch, index = key
        return self._pixels(epoch, index), self._listing.label(index)

    def path(self, index: int) -> str:
        """Return the path of sample `index`."""
        return os.fsdecode(self._listing.path(index))

    def _pixels(self, epoch: int, index: int) -> torch.Tensor:
        path = self._listing.path(index)
        data = read_file(path)
        try:
            picture = jpeg.DECODERS[self._decoder](data)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, struct.error, zlib.error, …
            raise DataCorrupt(_corrupt_text(path, data, error)) from None
        size = self.image_size
        width, height = picture.size if isinstance(picture, Image) else picture.shape[1::-1]
        if self.augment:
            cut = jpeg.random_cut(jpeg.generator(self.seed, epoch, index).random, width, height, size)
        else:
            cut = jpeg.centre_cut(width, height, size)
        return jpeg.TRANSFORMS[self._transforms](picture, cut, size)


def open_folder(
    folder: str,
    *,
    image_size: int,
    augment: bool,
    seed: int,
    decoder: str = "",
    transforms: str = "",
) -> ImageNet:
    """Open `folder`/train/<wnid>/*.JPEG.

    image_size: side of the square in pixels. augment: use the reference's random cut and mirror, drawn from `seed`,
    instead of the evaluation transform. decoder, transforms: see models/data/jpeg.py. Raises DataMissing, DataCorrupt
    or ImpossibleRequest; each says what to type.
    """
    folder = os.fspath(folder)
    manifest = read_manifest(folder, "resnet50")
    listing = find_files(folder)
    if manifest:
        check_against(manifest, len(listing), folder, len(listing.classes))
    return ImageNet(
        listing,
        manifest,
        image_size=image_size,
        augment=augment,
        seed=seed,
        decoder=decoder,
        transforms=transforms,
    )


def _corrupt_text(path: bytes, data: bytes, error: Exception) -> str:
    if not data:
        reason = "it is empty"
    elif isinstance(error, UnidentifiedImageError):
        reason = f"it begins with {data[:8]!r}"
    else:
        reason = f"{type(error).__name__}: {error}"
    return f"{printable(path)} is no readable JPEG ({reason}): replace the file, or skip such files with --skip-corrupt"


# --- the files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassListing:
    """Every file of a set, sorted by class and name; `first` is where each class begins."""

    files: FileList
    classes: Tuple[bytes, ...]
    first: List[int]

    @classmethod
    def of(cls, train: bytes, names: Dict[bytes, Sequence[bytes]]) -> ClassListing:
        """train: the folder of the class folders. names: of the files in each of these."""
        paths = [class_folder + b"/" + name for class_folder, inside in names.items() for name in inside]
        first = list(itertools.accumulate((len(inside) for inside in names.values()), initial=0))
        return cls(FileList.of(train, paths), tuple(names), first)

    def __len__(self) -> int:
        return len(self.files)

    def label(self, index: int) -> int:
        """Return the class of a file: the position of its folder among the sorted class folders, as in torchvision."""
        return bisect.bisect_right(self.first, index) - 1

    def path(self, index: int) -> bytes:
        return self.files.path(index)


def find_files(folder: str) -> ClassListing:
    """List the training files of an ImageNet folder without a stat of each file.

    Raises DataMissing, with the path and the command to type, for a folder that is missing or holds no ImageNet.
    """
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        with os.scandir(train) as entries:
            classes = sorted(entry.name for entry in entries if entry.name[:1] != b"." and entry.is_dir())
        if not 0 < len(classes) <= MOST_CLASSES:
            raise DataMissing(_wrong_classes_text(folder, len(classes)))
        with ThreadPoolExecutor(SCAN_THREADS) as pool:
            list_class = functools.partial(names_in, suffixes=SUFFIXES)
            files = dict(zip(classes, pool.map(list_class, (os.path.join(train, name) for name in classes))))
    except OSError as error:
        raise ADVICE.unreadable_set(folder, error) from None
    empty = [name for name in classes if not files[name]]
    if empty:
        raise DataMissing(
            f"{len(empty)} of {len(classes)} class folders hold no JPEG, the first is "
            f"{printable(os.path.join(train, empty[0]))}: complete the copy, {ADVICE.another(folder)}"
        )
    return ClassListing.of(train, files)


def _wrong_classes_text(folder: str, count: int) -> str:
    train = f"{printable(folder)}/train"
    if count:
        return f"{train} holds {count:,} classes, ImageNet-1k has {MOST_CLASSES:,}: {ADVICE.use(folder)}"
    return f"{train} holds no class folders, ImageNet lies in {ADVICE.holds}: {ADVICE.use(folder)}"
