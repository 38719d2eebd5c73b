"""MLPerf's own compliance checker reads our logs, and misses only what a throughput run does not do: evaluate."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from models import benchmarks
from models.data.synthetic import generator_of, write_set
from tests.models.jobs import Nursery

pytestmark = pytest.mark.slow

NOT_EVALUATED = {f"{what}_{edge}" for what in ("eval", "block", "epoch") for edge in ("start", "stop")}
ONLY_CLOSED = {  # the closed division wants all of the real set, and of Llama 3.1 the whole training as MLPerf has it
    "deepcam": {"train_samples"},
    "gpt": {"max_sequence_length", "max_steps", "opt_learning_rate_decay_steps", "opt_adamw_epsilon"},
}
NOT_EVALUATED |= {"eval_samples", "eval_accuracy", "eval_error"}


AT_NIGHT = pytest.mark.nightly("models/benchmarks", "models/training_setup.py", "models/meter.py")


@pytest.fixture(
    scope="module",
    params=[
        "cosmoflow",
        pytest.param("deepcam", marks=AT_NIGHT),
        pytest.param("gpt", marks=AT_NIGHT),
        pytest.param("resnet50", marks=AT_NIGHT),
    ],
)
def log(request: pytest.FixtureRequest, nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A benchmark, and the log of a very short real training of it."""
    folder = tmp_path_factory.mktemp("mlperf") / "data"
    generator = generator_of(request.param)
    write_set(str(folder), generator.recipe("smoke", 4, 0, generator.FORMATS[0]), processes=1)
    words = ["train", request.param, "--data-dir", folder, "--size", "smoke", "--device", "cpu", "--dtype", "fp32"]
    words += ["--warmup-steps", 0, "--windows", 1, "--steps-per-window", 1, "--workers", 0]
    ended = nursery.run(*words, "--local-batch-size", 2 if request.param == "resnet50" else 1)
    assert ended.code == 0, ended.errors
    return request.param, ended.log


@pytest.mark.parametrize("division", ["open", "closed"])
def test_the_checker_misses_only_the_evaluation(log: tuple[str, str], division: str, tmp_path: Path) -> None:
    benchmark, text = log
    usage, ruleset = benchmarks.load(benchmark).MLPERF_RULES
    (tmp_path / "log").write_text(
        text.replace('"submission_division", "value": "open"', f'"submission_division", "value": "{division}"')
    )
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", usage, "--ruleset", ruleset]
    done = subprocess.run(
        [*command, "--log_output", str(tmp_path / "out"), str(tmp_path / "log")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    said = done.stdout + done.stderr
    assert "Running compliance on file" in said
    assert f"{division}_" in said or division == "open"
    wrong = set(re.findall(r"CHECK for '?(\w+)", said))
    assert wrong <= (ONLY_CLOSED.get(benchmark, set()) if division == "closed" else set()), said
    missing = [set(re.findall(r"'(\w+)'", line)) for line in said.splitlines() if line.startswith("Required")]
    assert missing
    assert all(keys <= NOT_EVALUATED for keys in missing), missing
