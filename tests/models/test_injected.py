"""A slow loader, copy and step on this machine: the sentence on the change names each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from reporting.history.envelope import Envelope
from tests.injected import FAULTS, assert_each_named, assert_named, envelope, run_json_of_log, training
from tests.models.jobs import Nursery

pytestmark = pytest.mark.slow


class Trained:
    """Trainings with one of the modes, on one data set."""

    def __init__(self, nursery: Nursery, folder: Path, mode: str) -> None:
        self.nursery, self.data, self.mode = nursery, folder / "data", mode
        write_set(str(self.data), recipe_of(24, 3, 0), processes=1)

    def run(self, *fault: object) -> Envelope:
        ended = self.nursery.run(*training(self.data, "--mode", self.mode, *fault))
        assert ended.code == 0, ended.errors
        return envelope(run_json_of_log(ended.log))


def test_a_loader_that_was_slowed_is_named(nursery: Nursery, tmp_path: Path) -> None:
    """The least of the next test: a stall takes seconds of sleep, and computes nothing."""
    trained = Trained(nursery, tmp_path, "overlap")
    assert_named("wait_ms", [trained.run()], trained.run(*FAULTS["wait_ms"]))


@pytest.mark.nightly("models/fault_injection.py", "models/meter.py", "models/train.py", "reporting/compare")
@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_what_was_slowed_is_named(nursery: Nursery, tmp_path: Path, mode: str) -> None:
    assert_each_named(Trained(nursery, tmp_path, mode).run)
