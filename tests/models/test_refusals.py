"""What the two commands of a job refuse before they work: one sentence, the same on stderr and in the log.

And the gate on parameters, which no training meets on purpose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from models.checks import check_parameters_finite
from models.command_line import main
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe_of
from models.meter import Meter, Wire
from tests.models.jobs import LAUNCHERS

Refused = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "resnet50"
    write_set(str(folder), recipe_of(8, 1, 0), processes=1)
    return folder


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Runs `train` with these words, which it must refuse with this exit code; returns the sentence."""
    for name in os.environ:
        if name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)

    def run(code: int, *words: object) -> str:
        assert main(["train", *map(str, words)]) == code
        log, errors = capfd.readouterr()
        lines: list[dict[str, Any]] = [json.loads(line.removeprefix(":::MLLOG ")) for line in log.splitlines()]
        said = {line["key"]: line["value"] for line in lines}
        assert said["hpcml_end"]["exit_code"] == code
        assert "hpcml_start" not in said
        sentence: str = said["hpcml_problem"]["text"]
        assert errors == f"error: {sentence}\n"
        assert "\n" not in sentence
        return sentence

    return run


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--global-batch-size", 9, "--accumulation-steps", 2], "9 does not divide by 1 replica(s) x 2 accumulation"),
        (["--global-batch-size", 4, "--local-batch-size", 4], "say the same thing twice"),
        (["--shape", "32x"], "'32x' is no shape, as in 224x224"),
        (["--shape", "32x64"], "ResNet-50 trains on squares, not on 32x64"),
        (["--worker-start", "thread"], "resnet50 is decoded by processes; --worker-start is one of fork, "),
        (["--expect-world-size", 4], "--expect-world-size 4, and 1 rank(s) were started (launcher: none)"),
        (["--dtype", "fp16"], "does not train in fp16; --dtype is one of auto, "),
        (["--device", "tpu"], "unknown device 'tpu'; --device is one of auto, cpu, cuda"),
        (["--configuration", "gbs64"], "unknown configuration 'gbs64'; --configuration is one of gbs32, tuned"),
        (["--size", "huge"], "unknown size 'huge'; --size is one of smoke, quick, subset, full"),
        (["--variant", "v1"], "unknown variant 'v1'; --variant is one of v1.5, epcc"),
        (["--backend", "nccl"], "--backend nccl needs GPUs and the device is cpu"),
        (["--workers", "many"], "--workers is a number or auto, not 'many'"),
        (["--windows", 0], "'0' is not a whole number of 1 or more"),
        (["--gpus", 2], "unrecognized arguments: --gpus 2"),
    ],
)
def test_impossible_requests(more: list[object], sentence: str, refused: Refused, data: Path) -> None:
    assert sentence in refused(78, "resnet50", "--data-dir", data, "--device", "cpu", "--size", "smoke", *more)


def test_an_unknown_benchmark(refused: Refused) -> None:
    sentence = "unknown benchmark 'resnet51'; there is cosmoflow, deepcam, gpt, resnet50"
    assert refused(78, "resnet51", "--data-dir", "data") == sentence


def test_no_data_names_the_command_that_makes_it(refused: Refused, tmp_path: Path) -> None:
    folder = tmp_path / "resnet50-smoke"
    command = f"python -m models data resnet50 --data-dir {folder} --size smoke"
    assert command in refused(66, "resnet50", "--data-dir", folder, "--device", "cpu", "--size", "smoke")


@pytest.mark.parametrize(("wrong", "code"), [(None, 0), (float("inf"), 3), (float("nan"), 3)])
def test_parameters_that_are_not_finite_fail_a_run_whose_losses_are(
    wrong: float | None, code: int, tmp_path: Path
) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    if wrong is not None:
        net[1].bias.data[0] = wrong
    with (tmp_path / "log").open("wb") as file:
        windows = {"warmup_steps": 1, "windows": 1, "steps_per_window": 1}
        meter = Meter(samples=1, wire=Wire(fd=file.fileno()), folder=None, **windows)
        for _ in meter.steps(iter(range(2))):
            meter.loss(1.0)
        check_parameters_finite(net, meter)
        assert meter.finish() == code
    sentence = "1.bias is not finite after the last step, as 1 of 4 parameter tensors"
    assert (sentence in (tmp_path / "log").read_text()) is bool(code)


def test_data_is_written_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set"
    words = ["data", "resnet50", "--data-dir", str(folder), "--samples", "8", "--processes", "1"]
    assert (main(words), main(words)) == (0, 0)
    assert "8 samples in 1 classes" in capsys.readouterr().out
    assert len(list(folder.glob("train/*/*.JPEG"))) == 8
    assert main([*words, "--seed", "3"]) == 78
    log, errors = capsys.readouterr()
    assert errors.startswith("error: ")
    assert ":::MLLOG" not in log


def test_data_of_an_unknown_benchmark_is_refused_with_the_names_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "unet3d", "--data-dir", "d"]) == 78
    assert "unknown benchmark 'unet3d'; there is cosmoflow, deepcam, gpt, resnet50" in capsys.readouterr().err
