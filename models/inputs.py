"""Is what a run reads the benchmark's data at all? How large its samples' files are, and whether their values vary."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

import torch

LOOKED_AT = 4  # samples of the first batch
# A sample in memory is at most so many times as large as its file. JPEG: 224 x 224 pixels in colour are 150,528 bytes;
# Pillow packs the two photographs that come with scikit-learn 13 to 18 times at quality 75, 47 to 58 times at quality
# 10 and 83 to 92 times at quality 1. gzip packs CosmoFlow's counts 5.9 times (MLPerf Storage: 2.83 of 16.8 MB), and
# DeepCAM's floats not at all; deflate cannot pack anything more than 1,032 times, and reaches that on zeros.
MOST_PACKED = 100


class FirstInputs:
    """The first samples that a rank reads, as they were read: channels last, on the device, nothing normalised."""

    def __init__(self) -> None:
        self.sample_bytes: Optional[int] = None
        self._deviations: Optional[torch.Tensor] = None

    def look(self, read: torch.Tensor) -> None:
        """Take a batch, N x ... x channels. Nothing waits for the device."""
        some = read[:LOOKED_AT]
        self.sample_bytes = read[0].numel() * read.element_size()
        self._deviations = some.float().flatten(1, -2).std(1)

    def deviations(self) -> Optional[List[float]]:
        """The standard deviation within a sample, of each channel, averaged over the samples; None before `look`."""
        return None if self._deviations is None else [float(value) for value in self._deviations.mean(0)]

    def problems(self, file_bytes: Optional[float], folder: str, make: str) -> Iterator[Tuple[str, str]]:
        """Gate and sentence for each thing that no data of a benchmark is.

        file_bytes: mean size of a sample's file, None: not known. make: the command that writes a synthetic set.
        """
        other = f"so {folder} is not this benchmark's data; give --data-dir another set, or make one: {make}"
        if self.sample_bytes and file_bytes is not None and file_bytes * MOST_PACKED < self.sample_bytes:
            sizes = f"a sample's file has {file_bytes:,.0f} bytes, and {self.sample_bytes:,} in memory"
            yield "data_bytes", f"{sizes}: no picture or field packs more than {MOST_PACKED} times, {other}"
        if self._deviations is not None and float(self._deviations.max()) == 0:
            yield "input_varies", f"the first samples have the same value everywhere, {other}"
