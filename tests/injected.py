"""Trainings that are slowed on purpose in one part of a step: does the sentence on the change name that part?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from platforms.job import JobSpec, Layout, Outcome
from platforms.results.log_reader import parse
from platforms.rundir.job_json import as_json, run_content
from reporting.compare.causes import causes_of
from reporting.history.envelope import Envelope, Revision
from reporting.history.run_facts import envelope_of

FAULTS: Mapping[str, tuple[object, ...]] = {
    "wait_ms": ("--inject-stall-s", 2),
    "h2d_ms": ("--inject-copy-s", 2),
    "step_ms": ("--inject-slow", 16),
}
"""The options that slow each part by several times what a step takes, since tests run beside other work."""
NAMES: Mapping[str, str] = {
    "wait_ms": "waiting for data",
    "h2d_ms": "copies to the device",
    "step_ms": "the device step",
}


def training(data: Path, *more: object) -> list[object]:
    """The command line of the least that still has a measured window: two steps of four tiny pictures."""
    amounts = ("--warmup-steps", 1, "--windows", 1, "--steps-per-window", 2, "--global-batch-size", 4)
    options = ("--device", "cpu", "--size", "smoke", "--shape", "32x32", "--workers", 0)
    return ["train", "resnet50", "--data-dir", data, *options, *amounts, *more]


def run_json_of_log(log: str) -> dict[str, Any]:
    """The run.json of a job that left this log."""
    spec = JobSpec("resnet50-1x1cpu", "test_x.py::test_x[here]", "here", Layout(1, 1, "cpu"), ())
    content: dict[str, Any] = json.loads(as_json(run_content(parse(log, spec), spec, None, None, None)))
    return content


def envelope(run_json: Mapping[str, Any]) -> Envelope:
    """A run's line of the history."""
    return envelope_of(
        run_json,
        site="centre",
        run_id="r1",
        attempt=1,
        outcome=Outcome.PASSED,
        sane=True,
        revision=Revision.TEST_ENDED,
        written_s=0.0,
    )


def assert_each_named(run: Callable[..., Envelope]) -> None:
    """Of two runs at a time, one of them slowed. Other work may begin between the two, so a pair has three attempts."""
    for part, fault in FAULTS.items():
        for attempt in range(3):
            try:
                assert_named(part, [run()], run(*fault))
                break
            except AssertionError:
                if attempt == 2:
                    raise


def assert_named(part: str, plain: Sequence[Envelope], slowed: Envelope) -> None:
    """The sentence begins with the part that was slowed. Other work on this machine may have slowed the rest, too."""
    causes = causes_of(plain, [slowed])
    sentence = causes.sentence()
    assert next(iter(causes.split.moved)) == part, sentence
    change = causes.split.change
    assert change[part] > 0.6 * sum(change.values()), causes.split.numbers()
    assert NAMES[part] in sentence.split(",")[0], sentence
    assert not any("slowed on purpose" in run.doubts for run in plain)
    assert "slowed on purpose" in slowed.doubts
