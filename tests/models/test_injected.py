"""A slow loader, copy and step on this machine: the sentence on the change names each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from reporting.history.envelope import Envelope
from tests.injected import FAULTS, assert_each_named, envelope, run_json_of_log, training
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


def test_a_step_waits_as_long_as_the_loader_is_late(nursery: Nursery, tmp_path: Path) -> None:
    slowed = Trained(nursery, tmp_path, "overlap").run(*FAULTS["wait_ms"])
    assert slowed.beside["wait_ms"].value >= 0.9 * 2000
    assert "slowed on purpose" in slowed.doubts


@pytest.mark.nightly("models/fault_injection.py", "models/meter.py", "models/train.py", "reporting/compare")
@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_what_was_slowed_is_named(nursery: Nursery, tmp_path: Path, mode: str) -> None:
    assert_each_named(Trained(nursery, tmp_path, mode).run)
