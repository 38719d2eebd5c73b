"""Which samples a rank reads in which step: the same global order however many ranks and micro-batches share it."""

from __future__ import annotations

from typing import Iterator, List, Tuple

import numpy as np

from models.errors import Impossible


class StepSampler:
    """An endless batch sampler: each item is one micro-batch, a list of `local_batch` pairs (epoch, index).

    Every epoch is one permutation of the data set, drawn from (seed, epoch) and so equal on all ranks. The global batch
    of a step is the next `world * accumulation * local_batch` samples of it, cut into `world * accumulation`
    micro-batches; rank r takes the micro-batches r * accumulation … r * accumulation + accumulation - 1, one item after
    the other. So two ranks see together, step by step, what one rank sees with twice the accumulation. The last
    incomplete global batch of an epoch is dropped. Where the data set is smaller than a global batch, an epoch is as
    many permutations as fill one. It never ends and therefore has no len(): no worker restarts inside a window.

    length: samples in the data set; local_batch: samples per micro-batch; accumulation: micro-batches per optimiser
    step. Raises Impossible for numbers below 1.
    """

    def __init__(self, length: int, *, local_batch: int, rank: int, world: int, accumulation: int, seed: int) -> None:
        if min(length, local_batch, world, accumulation) < 1 or not 0 <= rank < world or seed < 0:
            raise Impossible(
                f"{length} samples, local batch size {local_batch}, rank {rank} of {world}, {accumulation} "
                f"accumulation steps and seed {seed} make no batches: give positive numbers, and a rank below the "
                f"world size"
            )
        self.global_batch = world * accumulation * local_batch
        self.length, self.local_batch, self.seed = length, local_batch, seed
        self.rank, self.accumulation = rank, accumulation
        self.passes = -(-self.global_batch // length)  # of the data set in an epoch
        self.steps_per_epoch = self.passes * length // self.global_batch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch with which the next pass over this sampler starts."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        epoch = self.epoch
        while True:
            draw = np.random.default_rng((self.seed, epoch))
            order = np.concatenate([draw.permutation(self.length) for _ in range(self.passes)])
            for step in range(self.steps_per_epoch):
                first = step * self.global_batch + self.rank * self.accumulation * self.local_batch
                for start in range(first, first + self.accumulation * self.local_batch, self.local_batch):
                    yield [(epoch, index) for index in order[start : start + self.local_batch].tolist()]
            epoch += 1
