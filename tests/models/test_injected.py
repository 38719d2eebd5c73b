"""A slow loader, copy and step on this machine: the sentence on the change names each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from reporting.history.envelope import Envelope
from tests.injected import FAULTS, assert_named, envelope, run_json_of_log, training
from tests.models.jobs import Nursery


@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_what_was_slowed_is_named(nursery: Nursery, tmp_path: Path, mode: str) -> None:
    data = tmp_path / "data"
    write_set(str(data), recipe_of(24, 3, 0), processes=1)

    def trained(*fault: object) -> Envelope:
        ended = nursery.run(*training(data, "--mode", mode, *fault))
        assert ended.code == 0, ended.errors
        return envelope(run_json_of_log(ended.log))

    plain = [trained(), trained()]
    for part, fault in FAULTS.items():
        assert_named(part, plain, trained(*fault))
