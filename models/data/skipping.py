"""Passes over samples that cannot be read (--skip-corrupt), and counts them."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch

from models.errors import DataCorrupt

MOST_SKIPPED = 100  # samples in a row: by then it is the data set that is corrupt, not a sample


class Skipping(torch.utils.data.Dataset):
    """A data set in which the next good sample stands in for a corrupt one; everything else is that of `data`."""

    def __init__(self, data: Any) -> None:
        self._data = data
        # A mark per sample, shared by all workers. No counter: it would need a lock, which a killed worker keeps.
        self._corrupt = torch.zeros(len(data), dtype=torch.uint8).share_memory_()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is unpickled in a worker, there is no _data yet
            raise AttributeError(name)
        return getattr(self._data, name)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: Tuple[int, int]) -> Any:
        epoch, index = key
        return self._first_good(index, lambda instead: self._data[(epoch, instead)])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        self._first_good(index, lambda instead: self._data.fill(instead, x, y))

    @property
    def skipped(self) -> int:
        """How many corrupt samples were passed over so far, in all workers together."""
        return int(self._corrupt.sum())

    def skipped_files(self) -> List[str]:
        """Which files they were."""
        return [self._data.path(index) for index in self._corrupt.nonzero().flatten().tolist()]

    def _first_good(self, index: int, read: Callable[[int], Any]) -> Any:
        for turn in range(MOST_SKIPPED):
            instead = (index + turn) % len(self)
            try:
                return read(instead)
            except DataCorrupt as error:
                last = error
                self._corrupt[instead] = 1
        raise DataCorrupt(f"{MOST_SKIPPED} corrupt samples in a row, the last: {last}")
