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
from models.data.file_list import FileList, names_in, printable
from models.data.manifest import Manifest, check_against, read_manifest
from models.data.synthetic_cosmoflow import REDSHIFTS, SHAPES, TARGETS
from models.data.thread_loader import sample
from models.errors import DataCorrupt, DataMissing
from models.settings import Shape, shape_text

TFRECORD = (b".tfrecord",)
HDF5 = (b".hdf5", b".h5")
COUNT_BYTES = 2  # of an int16
ADVICE = Advice("cosmoflow", "a CosmoFlow set", "train/*.tfrecord or train/*.hdf5")

Blank = Tuple[Tuple[Shape, torch.dtype], Tuple[Shape, torch.dtype]]


class CosmoFlowData:
    """A map-style data set indexed by (epoch, index): (int16 counts of D x H x W x 4, four float32 from -1 to 1).

    Nothing is normalised and the redshifts come last, as in the file: both belong on the device.

    kind         "synthetic" if there is a manifest, else "real"
    format       "tfrecord" or "hdf5"
    bytes        sum of the files by the manifest; None for a real set
    decoder      e.g. "deflate 0.9.0, google-crc32c 1.9.0"
    transforms   None: the host changes nothing
    warnings     for the reader of the result: what makes reading slow
    blank        shape and dtype of one sample's counts, and of its parameters
    """

    transforms: Optional[str] = None

    def __init__(
        self, folder: str, files: FileList, manifest: Optional[Manifest], shape: Shape, reader: tfrecord.TfRecordReader
    ) -> None:
        self._files = files
        self._reader = reader
        self.kind = manifest.kind if manifest else "real"
        self.bytes = manifest.bytes if manifest else None
        self.blank: Blank = (((*shape, REDSHIFTS), torch.int16), ((TARGETS,), torch.float32))
        self.format = "tfrecord" if files.path(0).lower().endswith(TFRECORD) else "hdf5"
        if self.format == "tfrecord":
            _check_tfrecord(folder, files.path(0), shape, reader)
            self.decoder = reader.decoder
            self.warnings = reader.warnings
        else:
            self.decoder = hdf5.versions()
            self.warnings = _check_hdf5(folder, files.path(0), shape)

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

        Raises DataMissing for a file that is gone, DataCorrupt for one that cannot be read, has another shape or dtype
        or a second sample, or parameters that are not finite.
        """
        path = self._files.path(index)
        counts = x.numpy()
        parameters = y.numpy()
        if self.format == "tfrecord":
            self._reader.read(path, np.frombuffer(counts, np.uint8), parameters)
        else:
            _read_hdf5(path, counts, parameters)


def open_folder(folder: str, *, shape: Shape, reader: Optional[tfrecord.TfRecordReader] = None) -> CosmoFlowData:
    """Open `folder`/train/*.tfrecord, or *.hdf5 and *.h5, of one sample each.

    shape: depth, height and width that the samples must have. reader: of TFRecords; None, the fastest. Raises
    DataMissing, DataCorrupt or ImpossibleRequest; each says what to type.
    """
    folder = os.fspath(folder)
    manifest = read_manifest(folder, "cosmoflow")
    files = _find_files(folder)
    if manifest:
        check_against(manifest, len(files), folder)
    return CosmoFlowData(folder, files, manifest, tuple(shape), reader or tfrecord.fastest())


def _find_files(folder: str) -> FileList:
    train = os.path.join(os.fsencode(folder), b"train")
    try:
        names = names_in(train, (*TFRECORD, *HDF5))
    except OSError as error:
        raise ADVICE.unreadable_set(folder, error) from None
    if not names:
        raise DataMissing(f"{printable(train)} holds no *.tfrecord, *.hdf5 or *.h5: {ADVICE.use(folder)}")
    records = sum(name.lower().endswith(TFRECORD) for name in names)
    if 0 < records < len(names):
        raise DataMissing(_mixed_formats_text(folder, records, len(names) - records))
    return FileList.of(train, names)


# --- one file --------------------------------------------------------------------------------------------------------


def _check_tfrecord(folder: str, path: bytes, shape: Shape, reader: tfrecord.TfRecordReader) -> None:
    """Raise DataMissing if the samples are of another size; a TFRecord does not hold their shape."""
    size = reader.array_bytes(path)
    if size == math.prod(shape) * REDSHIFTS * COUNT_BYTES:
        return
    side = round((size / REDSHIFTS / COUNT_BYTES) ** (1 / 3))
    is_cube = side**3 * REDSHIFTS * COUNT_BYTES == size
    found = shape_text((side, side, side)) if is_cube else f"{size:,} bytes"
    raise ADVICE.other_shape(folder, path, found, shape, SHAPES)


def _check_hdf5(folder: str, path: bytes, shape: Shape) -> Tuple[str, ...]:
    """Return what makes reading the first file slow. Raises DataMissing for samples of another shape or dtype."""
    x, _ = hdf5.describe(path, ("x", "y"))
    if not np.can_cast(x.dtype, np.int16):
        raise DataMissing(
            f"{printable(path)}: x is {x}, and expected is {hdf5.described((*shape, REDSHIFTS), np.int16)}, counts "
            f"that are not normalised, as the reference's prepare.py writes them: {ADVICE.use(folder)}"
        )
    if x.shape != (*shape, REDSHIFTS):
        found = x.shape[:-1] if x.shape[-1:] == (REDSHIFTS,) else x.shape
        raise ADVICE.other_shape(folder, path, shape_text(found), shape, SHAPES)
    if x.lies_as(np.int16):
        return ()
    return (f"{hdf5.SLOW}: x of {printable(path)}",)


def _read_hdf5(path: bytes, counts: Any, parameters: Any) -> None:
    buffers: List[Any] = []

    def buffer_for(stored: hdf5.StoredArray) -> Any:
        """Return memory of the file's own dtype: only such is read without HDF5's lock."""
        buffers.append(np.empty(parameters.shape, stored.dtype) if stored.dtype.kind == "f" else parameters)
        return buffers[0]

    hdf5.read(path, {"x": counts, "y": buffer_for})
    parameters[:] = buffers[0]
    if not np.isfinite(parameters).all():
        raise DataCorrupt(
            f"{printable(path)}: y is not finite: {parameters.tolist()}; copy the file again, or skip such files with "
            "--skip-corrupt"
        )


def _mixed_formats_text(folder: str, records: int, others: int) -> str:
    real_folder = os.path.realpath(folder).rstrip("/")
    new = shlex.quote(printable(f"{real_folder}-tfrecord"))
    train = shlex.quote(printable(f"{real_folder}/train"))
    return (
        f"{printable(folder)}/train holds {records:,} *.tfrecord and {others:,} *.hdf5 or *.h5, and a set has one "
        f"format: give --data-dir a folder of links to the files of one format: mkdir -p {new}/train && "
        f"find {train} -name '*.tfrecord' -exec ln -s -t {new}/train {{}} +"
    )
