"""The order in which samples are read: the same global order on any number of ranks and micro-batches."""

from __future__ import annotations

import itertools
from typing import Iterator, List, Tuple

import numpy as np

from models.errors import ImpossibleRequest


class StepSampler:
    """An endless batch sampler: each item is one micro-batch, a list of `local_batch` pairs (epoch, index).

    Every epoch is one permutation of the data set, drawn from (seed, epoch) and so equal on all ranks. The global batch
    of a step is the next `world * accumulation * local_batch` samples of it, cut into `world * accumulation`
    micro-batches. Rank r takes `accumulation` of them, from number r * accumulation on, one item after the other. So
    two ranks together see, step by step, what one rank sees with twice the accumulation. The last incomplete global
    batch of an epoch is dropped. If the data set is smaller than a global batch, an epoch has as many permutations as
    fill one. The sampler has no end and therefore no len(): no worker restarts inside a window.

    length: samples in the data set; local_batch: samples per micro-batch; accumulation: micro-batches per optimiser
    step. Raises ImpossibleRequest for numbers below 1.
    """

    def __init__(self, length: int, *, local_batch: int, rank: int, world: int, accumulation: int, seed: int) -> None:
        if min(length, local_batch, world, accumulation) < 1 or not 0 <= rank < world or seed < 0:
            raise ImpossibleRequest(
                f"{length} samples, local batch size {local_batch}, rank {rank} of {world}, {accumulation} "
                f"accumulation steps and seed {seed} make no batches: give positive numbers, and a rank below the "
                f"world size"
            )
        self.global_batch = world * accumulation * local_batch
        self.length = length
        self.local_batch = local_batch
        self.seed = seed
        self.rank = rank
        self.accumulation = accumulation
        self.permutations = -(-self.global_batch // length)  # of the data set in an epoch
        self.steps_per_epoch = self.permutations * length // self.global_batch

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        own_samples = self.accumulation * self.local_batch  # of a step
        epoch = 0
        while True:
            draw = np.random.default_rng((self.seed, epoch))
            order = np.concatenate([draw.permutation(self.length) for _ in range(self.permutations)])
            for step in range(self.steps_per_epoch):
                first = step * self.global_batch + self.rank * own_samples
                for start in range(first, first + own_samples, self.local_batch):
                    yield [(epoch, index) for index in order[start : start + self.local_batch].tolist()]
            epoch += 1


class SlabSampler:
    """Batches of several optimiser steps for a device that cuts a batch by replica first: each gets one slab of it.

    A slab has a replica's samples of the first step, then those of the second, and so on. So each step trains on the
    samples that `StepSampler` has for it.

    shares: a StepSampler of which an item is one replica's share of a step; replicas: of this rank.
    """

    def __init__(self, shares: StepSampler, *, replicas: int, steps: int) -> None:
        self.shares = shares
        self.replicas = replicas
        self.steps = steps

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        shares = iter(self.shares)
        while True:
            slabs: List[List[Tuple[int, int]]] = [[] for _ in range(self.replicas)]
            for _ in range(self.steps):
                for slab in slabs:
                    slab += next(shares)
            yield list(itertools.chain.from_iterable(slabs))
