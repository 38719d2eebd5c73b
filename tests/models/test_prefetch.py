"""A thread fetches one item ahead, and neither loses an item nor outlives its consumer."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from models.prefetch import prefetch_one
from tests.waiting import PATIENCE_S, until


class Noting:
    """Numbers from 0 on; `fetched` says how many were asked for, `closed` that the generator was closed."""

    def __init__(self) -> None:
        self.fetched, self.closed = 0, threading.Event()

    def items(self) -> Iterator[int]:
        try:
            for number in itertools.count():
                self.fetched += 1
                yield number
        finally:
            self.closed.set()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ahead"]


def test_the_items_come_in_their_order_and_end() -> None:
    assert list(prefetch_one(iter(range(100)))) == list(range(100))
    assert threads() == []


def test_one_item_waits_while_the_consumer_has_one() -> None:
    source = Noting()
    items = prefetch_one(source.items())
    assert source.fetched == 0
    assert next(items) == 0
    until(lambda: source.fetched == 2)
    assert next(items) == 1
    until(lambda: source.fetched == 3)
    items.close()
    assert source.fetched == 3
    assert threads() == []
    assert source.closed.wait(PATIENCE_S)


def test_an_item_is_handed_out_while_the_next_one_is_late() -> None:
    late = threading.Event()

    def slow() -> Iterator[int]:
        yield 0
        assert late.wait(PATIENCE_S)
        yield 1

    items = prefetch_one(slow())
    assert next(items) == 0
    late.set()
    assert list(items) == [1]


def test_an_error_comes_in_the_place_of_its_item() -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise ValueError("the second one is broken")

    items = prefetch_one(broken())
    assert next(items) == 0
    with pytest.raises(ValueError, match="the second one is broken"):
        next(items)
    assert threads() == []
