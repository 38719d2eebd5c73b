"""A checkpoint after the windows: it is timed, compared, removed, and loses no window where it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import CheckpointException

from models import checkpoint, checks
from models.ranks import Ranks
from models.world import World
from tests.models.jobs import Nursery

pytestmark = pytest.mark.slow  # torch imports its checkpoints for seconds


@pytest.fixture
def step() -> SimpleNamespace:
    """A model of which a step has been made, so that the optimiser has a state."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    return SimpleNamespace(model=model, optimizer=optimizer)


def measured(step: SimpleNamespace, folder: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    said: list[tuple[str, str]] = []
    meter = SimpleNamespace(wire=SimpleNamespace(problem=lambda gate, text: said.append((gate, text))))
    setup = SimpleNamespace(options=SimpleNamespace(checkpoint=str(folder)))
    return checks.measured_checkpoint(step, setup, Ranks(World()), meter), said


def test_a_checkpoint_is_timed_and_removed(step: SimpleNamespace, tmp_path: Path) -> None:
    weights = step.model.weight.detach().clone()
    value, said = measured(step, tmp_path)
    value = value["checkpoint"]
    assert value["identical"] is True
    assert value["bytes"] > 3 * 4 * 64 * 64
    assert (value["write_s"] > 0, value["read_s"] > 0) == (True, True)
    assert (said, list(tmp_path.iterdir())) == ([], [])
    assert torch.equal(step.model.weight, weights)


def test_other_weights_than_were_written_are_a_gate(
    step: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that gives back zeros."""
    load = checkpoint.dcp.load

    def zeros(state: dict[str, dict[str, torch.Tensor]], **words: object) -> None:
        load(state, **words)
        state["model"]["weight"].zero_()

    monkeypatch.setattr(checkpoint.dcp, "load", zeros)
    assert measured(step, tmp_path)[1] == [
        ("checkpoint", "the weights that were read back are not those that were written")
    ]


def test_a_checkpoint_that_cannot_be_written_is_a_gate_and_leaves_nothing(
    step: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **words: object) -> None:
        raise CheckpointException("write", {0: (OSError(28, "No space left on device"), None)})  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint.dcp, "save", full)
    value, said = measured(step, tmp_path)
    assert value == {}
    assert said == [("checkpoint", f"--checkpoint {tmp_path}: [Errno 28] No space left on device")]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_before_the_training(nursery: Nursery, tmp_path: Path) -> None:
    words = ("train", "cosmoflow", "--data-dir", tmp_path, "--size", "smoke", "--checkpoint", tmp_path / "no")
    ended = nursery.run(*words)
    assert ended.code == 78
    assert f"--checkpoint {tmp_path / 'no'} is no folder that this rank can write: make it, or" in ended.log
