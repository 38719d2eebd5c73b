"""The order of samples is the same however many ranks and micro-batches share a step."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from models.data.sampling import StepSampler
from models.errors import ImpossibleRequest


def sampler(length=100, local_batch=4, rank=0, world=1, accumulation=1, seed=0):
    return StepSampler(length, local_batch=local_batch, rank=rank, world=world, accumulation=accumulation, seed=seed)


def take(sampler, count):
    return list(itertools.islice(sampler, count))


def test_an_epoch_is_a_permutation_and_its_incomplete_last_batch_is_dropped():
    batches = take(sampler(length=10, local_batch=4), 5)
    assert [[epoch for epoch, _ in batch] for batch in batches] == [[0] * 4, [0] * 4, [1] * 4, [1] * 4, [2] * 4]
    for epoch in (0, 2):
        indices = [index for batch in batches[epoch : epoch + 2] for _, index in batch]
        assert len(set(indices)) == 8
        assert set(indices) <= set(range(10))
    assert batches[0] != [(0, index) for _, index in batches[2]], "each epoch has an order of its own"


@pytest.mark.parametrize(("world", "accumulation"), [(1, 1), (2, 3), (4, 2), (3, 1)])
def test_the_global_batch_of_a_step_does_not_depend_on_who_shares_it(world, accumulation):
    size = 24 // (world * accumulation)
    ranks = [
        take(sampler(length=90, local_batch=size, rank=rank, world=world, accumulation=accumulation), 5 * accumulation)
        for rank in range(world)
    ]
    steps = [
        [pair for rank in ranks for batch in rank[step * accumulation : (step + 1) * accumulation] for pair in batch]
        for step in range(5)
    ]
    assert steps == take(sampler(length=90, local_batch=24), 5)


def test_the_order_depends_on_the_seed_and_the_epoch():
    assert take(sampler(seed=1), 3) != take(sampler(seed=2), 3)
    # pinned: a change of the order is a change of what is trained
    order = np.random.default_rng((7, 5)).permutation(12)
    epochs = take(sampler(length=12, local_batch=12, seed=7), 6)
    assert epochs[5] == [(5, index) for index in order.tolist()]
    assert take(sampler(length=6, local_batch=6, seed=0), 1) == [[(0, index) for index in (3, 2, 5, 4, 0, 1)]]


def test_a_global_batch_larger_than_the_set_repeats_its_samples():
    """Two ranks, three steps of 8 samples of a set of 5: each epoch is two permutations, whose last two are dropped."""
    ranks = [take(sampler(length=5, local_batch=4, rank=rank, world=2), 3) for rank in (0, 1)]
    steps = [one + other for one, other in zip(*ranks, strict=True)]
    assert [{epoch for epoch, _ in step} for step in steps] == [{0}, {1}, {2}]
    for step in steps:
        indices = [index for _, index in step]
        assert sorted(indices[:5]) == [0, 1, 2, 3, 4]
        assert len(set(indices[5:])) == 3
    assert sampler(length=4).steps_per_epoch == 1


@pytest.mark.parametrize(
    "wrong",
    [{"length": 0}, {"local_batch": 0}, {"world": 0}, {"accumulation": 0}, {"rank": 1}, {"rank": -1}, {"seed": -1}],
)
def test_numbers_that_make_no_batches_are_refused(wrong):
    with pytest.raises(ImpossibleRequest, match="make no batches"):
        sampler(**wrong)
