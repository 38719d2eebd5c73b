"""An ImageNet folder of JPEGs, real or synthetic, as a torch data set of uint8 pixels and labels."""

from __future__ import annotations

import os
from typing import Optional, Tuple

import torch
from PIL import UnidentifiedImageError
from PIL.Image import Image

from models.data import jpeg
from models.data.files import read_file, show
from models.data.folder import Listing, find_files
from models.data.manifest import Manifest, check_against, read_manifest
from models.errors import DataCorrupt


class ImageNet(torch.utils.data.Dataset):
    """A map-style data set indexed by (epoch, index): (uint8 tensor of image_size x image_size x 3, label).

    The channels come last and nothing is normalised: both belong on the device, and uint8 is a quarter of the copy. The
    augmentation of a sample depends on (seed, epoch, index) only.

    kind         "synthetic" when a manifest says so, else "real"
    format       "jpeg"
    warnings     what a reader of the result must know: nothing
    classes      how many there are; labels are the positions of the sorted class folders, as torchvision counts
    bytes        sum of the JPEGs by the manifest; None for a real set, where a stat per file would be needed
    decoder      e.g. "pillow 13.0.0 libjpeg-turbo 3.2.0" (docs: models/data/jpeg.py)
    transforms   e.g. "torchvision 0.28.0"
    blank        shape and dtype of one sample's pixels, and of its label
    """

    format = "jpeg"
    warnings: Tuple[str, ...] = ()

    def __init__(
        self,
        listing: Listing,
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
        self.image_size, self.augment, self.seed = image_size, augment, seed
        self.blank = (((image_size, image_size, 3), torch.uint8), ((), torch.int64))
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.classes = len(listing.classes)

    def __len__(self) -> int:
        return len(self._listing)

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[torch.Tensor, int]:
        """Raises DataMissing for a file that is gone, DataCorrupt for one that is no image."""
        epoch, index = key
        return self._picture(epoch, index), self._listing.label(index)

    def path(self, index: int) -> str:
        """Where sample `index` lies."""
        return os.fsdecode(self._listing.path(index))

    def _picture(self, epoch: int, index: int) -> torch.Tensor:
        path = self._listing.path(index)
        data = read_file(path)
        try:
            picture = jpeg.DECODERS[self._decoder](data)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's plugins raise OSError, SyntaxError, struct.error, zlib.error, …
            raise DataCorrupt(_corrupt(path, data, error)) from None
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

    image_size: side of the square in pixels. augment: the reference's random cut and mirror, drawn from `seed`, else
    the evaluation transform. decoder, transforms: see models/data/jpeg.py. Raises DataMissing, DataCorrupt or
    Impossible; each says what to type.
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


def _corrupt(path: bytes, data: bytes, error: Exception) -> str:
    why = "it is empty" if not data else f"{type(error).__name__}: {error}"
    if isinstance(error, UnidentifiedImageError) and data:
        why = f"it begins with {data[:8]!r}"
    return f"{show(path)} is no readable JPEG ({why}): replace the file, or pass over such files with --skip-corrupt"
