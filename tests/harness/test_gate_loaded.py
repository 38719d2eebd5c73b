"""The gate is loaded with the first number of a session, and then knows of the tests that ended before."""

from __future__ import annotations

from types import SimpleNamespace

from harness.gate import Gate


class Loaded:
    """Stands in for Confirmations."""

    def __init__(self):
        self.noted = []

    def note(self, test):
        self.noted.append(test)

    def repeats(self, test):
        return [f"repeat of {test}"]

    def waits(self, test):
        return True

    def released(self):
        return ["slow"]


def result(*metrics):
    return SimpleNamespace(envelope=SimpleNamespace(metrics=dict.fromkeys(metrics)))


def test_the_first_number_loads_the_gate():
    ended = {"failed": [SimpleNamespace(envelope=None)], "true": [result()], "slow": [result("rate")]}
    gate = Gate(Loaded, SimpleNamespace(results=ended.__getitem__))
    assert gate.repeats("failed") == gate.repeats("true") == gate.released() == []
    assert not gate.waits("true")
    assert gate.loaded is None
    assert gate.repeats("slow") == ["repeat of slow"]
    assert gate.loaded.noted == ["failed", "true"]
    assert gate.waits("slow")
    assert gate.released() == ["slow"]


def test_it_is_loaded_once():
    gate = Gate(Loaded, SimpleNamespace(results=lambda test: []))
    assert gate.load() is gate.load()
