"""Skips samples that cannot be read (--skip-corrupt), and counts them."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch

from models.errors import DataCorrupt

MOST_SKIPPED = 100  # in a row; more mean that the data set is corrupt, and not a sample of it


class SkipCorrupt(torch.utils.data.Dataset):
    """A data set in which the next good sample stands in for a corrupt one; everything else is that of `data`."""

    def __init__(self, data: Any) -> None:
        self._data = data
        # One mark for each sample, shared by all workers. A counter would need a lock, which a killed worker keeps.
        self._corrupt = torch.zeros(len(data), dtype=torch.uint8).share_memory_()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while a worker unpickles this object, it has no _data yet
            raise AttributeError(name)
        return getattr(self._data, name)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, key: Tuple[int, int]) -> Any:
        epoch, index = key
        return self._first_good(index, lambda good: self._data[(epoch, good)])

    def fill(self, index: int, x: torch.Tensor, y: torch.Tensor) -> None:
        self._first_good(index, lambda good: self._data.fill(good, x, y))

    @property
    def skipped(self) -> int:
        """How many corrupt samples were skipped so far, in all workers together."""
        return int(self._corrupt.sum())

    def _first_good(self, index: int, read: Callable[[int], Any]) -> Any:
        for offset in range(MOST_SKIPPED):
            candidate = (index + offset) % len(self)
            try:
                return read(candidate)
            except DataCorrupt as error:
                last_error = error
                self._corrupt[candidate] = 1
        raise DataCorrupt(f"{MOST_SKIPPED} corrupt samples in a row, the last: {last_error}")
