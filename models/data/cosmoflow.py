"""A CosmoFlow folder of TFRecords or HDF5 files, real or synthetic, as a data set of counts and their parameters."""

from __future__ import annotations

import math
import os
import shlex
from typing import Any, List, Optional, Tuple

import numpy as np
import torch

from models.data import hdf5, tfrecord
from models.data.advice import Advice
from models.data.files import Files, names_in, show
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_cosmoflow import REDSHIFTS, SHAPES, TARGETS
from models.data.threads import sample
from models.errors import DataCorrupt, DataMissing
from models.settings import Shape, by

TFRECORD, HDF5 = (b".tfrecord",), (b".hdf5", b".h5")
COUNT_BYTES = 2
ADVICE = Advice("cosmoflow", "a CosmoFlow set", "train/*.tfrecord or train/*.hdf5")

Blank = Tuple[Tuple[Shape, torch.dtype], Tuple[Shape, torch.dtype]]


class CosmoFlow:
    """A map-style data set indexed by (epoch, index): (int16 counts of D x H x W x 4, four float32 from -1 to 1).

    Nothing is normalised and the redshifts come last, as in the file: both belong on the device.

    kind         "synthetic" when a manifest says so, else "real"
    format       "tfrecord" or "hdf5"
    bytes        sum of the files by the manifest; None for a real set
    decoder      e.g. "isal 1.9.1, google-crc32c 1.9.0"
    transforms   None: the host changes nothing
    warnings     what makes reading slow
    blank        shape and dtype of one sample's counts, and of its parameters
    """

    transforms: Optional[str] = None

    def __init__(
        self, folder: str, files: Files, manifest: Optional[Manifest], shape: Shape, reader: tfrecord.Reader
    ) -> None:
        self._files, self._reader = files, reader
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.blank: Blank = (((*shape, REDSHIFTS), torch.int16), ((TARGETS,), torch.float32))
        self.format = "tfrecord" if files.path(0).lower().endswith(TFRECORD) else "hdf5"
        if self.format == "tfrecord":
            _check_tfrecord(folder, files.path(0), shape, reader)
            self.decoder, self.warnings = reader.decoder, reader.warnings
        else:
            self.decoder, self.warnings = hdf5.versions(), _check_hdf5(folder, files.path(0), shape)

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

        Raises DataMissing for a file that is gone, DataCorrupt for one that cannot be read, has another shape or dtype
        or a second sample, or parameters that are not finite.
        """
        path, counts, parameters = self._files.path(index), x.numpy(), y.numpy()
        if self.format == "tfrecord":
            self._reader.read(path, np.frombuffer(counts, np.uint8), parameters)
        else:
            _read_hdf5(path, counts, parameters)


def open_folder(folder: str, *, shape: Shape, reader: Optional[tfrecord.Reader] = None) -> CosmoFlow:
    """Open `folder`/train/*.tfrecord, or *.hdf5 and *.h5, of one sample each.

    shape: depth, height and width that the samples must have. reader: of TFRecords; None, the fastest. Raises
    DataMissing, DataCorrupt or Impossible; each says what to type.
    """
    folder = os.fspath(folder)
    manifest = read_manifest(folder, "cosmoflow")
    files = _find_files(folder)
    if manifest:
        check_against(manifest, len(files), folder)
    return CosmoFlow(folder, files, manifest, tuple(shape), reader or tfrecord.fastest())


def _find_files(folder: str) -> Files:
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        names = names_in(train, (*TFRECORD, *HDF5))
    except OSError as error:
        raise ADVICE.unreadable(folder, error) from None
    if not names:
        raise DataMissing(f"{show(train)} holds no *.tfrecord, *.hdf5 or *.h5: {ADVICE.use(folder)}")
    records = sum(name.lower().endswith(TFRECORD) for name in names)
    if 0 < records < len(names):
        raise DataMissing(_both(folder, records, len(names) - records))
    return Files.of(train, names)


# --- one file --------------------------------------------------------------------------------------------------------


def _check_tfrecord(folder: str, path: bytes, shape: Shape, reader: tfrecord.Reader) -> None:
    """Raises DataMissing when the samples are of another size; a TFRecord does not tell their shape."""
    size, wanted = reader.array_bytes(path), math.prod(shape) * REDSHIFTS * COUNT_BYTES
    if size != wanted:
        side = round((size / REDSHIFTS / COUNT_BYTES) ** (1 / 3))
        cube = (side, side, side)
        known = math.prod(cube) * REDSHIFTS * COUNT_BYTES == size
        raise ADVICE.other_shape(folder, path, by(cube) if known else f"{size:,} bytes", shape, SHAPES)


def _check_hdf5(folder: str, path: bytes, shape: Shape) -> Tuple[str, ...]:
    """What is slow about the first file. Raises DataMissing when its samples are of another shape or dtype."""
    x, _ = hdf5.describe(path, ("x", "y"))
    if not np.can_cast(x.dtype, np.int16):
        raise DataMissing(
            f"{show(path)}: x is {x}, and what is read is {hdf5.described((*shape, REDSHIFTS), np.int16)}, counts that "
            f"nobody normalised, as the reference's prepare.py writes them: {ADVICE.use(folder)}"
        )
    if x.shape != (*shape, REDSHIFTS):
        cube = x.shape[:-1] if x.shape[-1:] == (REDSHIFTS,) else x.shape
        raise ADVICE.other_shape(folder, path, by(cube), shape, SHAPES)
    return (f"{hdf5.SLOW}: x of {show(path)}",) if x.offset is None or x.dtype != np.int16 else ()


def _read_hdf5(path: bytes, counts: Any, parameters: Any) -> None:
    found: List[Any] = []

    def place(array: hdf5.Array) -> Any:
        """Memory of the parameters' own dtype: only such are read without HDF5's lock."""
        found.append(np.empty(parameters.shape, array.dtype) if array.dtype.kind == "f" else parameters)
        return found[0]

    hdf5.read(path, {"x": counts, "y": place})
    parameters[:] = found[0]
    if not np.isfinite(parameters).all():
        raise DataCorrupt(
            f"{show(path)}: y is not finite: {parameters.tolist()}; copy the file again, or pass over such files with "
            "--skip-corrupt"
        )


# --- what to say -----------------------------------------------------------------------------------------------------


def _both(folder: str, records: int, others: int) -> str:
    place = os.path.realpath(folder).rstrip("/")
    new, train = shlex.quote(show(f"{place}-tfrecord")), shlex.quote(show(f"{place}/train"))
    return (
        f"{show(folder)}/train holds {records:,} *.tfrecord and {others:,} *.hdf5 or *.h5, and a set is of one format: "
        f"give --data-dir a folder of links to those of one, mkdir -p {new}/train && find {train} -name '*.tfrecord' "
        f"-exec ln -s -t {new}/train {{}} +"
    )
