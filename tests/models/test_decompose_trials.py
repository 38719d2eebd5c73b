"""benchmarks/decompose_trials.py: what it draws can be trained, and what counts as a right answer."""

from __future__ import annotations

import random

import pytest

from benchmarks import decompose_trials as trials
from models.command_line import parser


@pytest.mark.parametrize("cause", trials.EXPECTED)
@pytest.mark.parametrize("benchmark_name", trials.WORKLOADS)
def test_train_understands_what_is_drawn(cause, benchmark_name):
    trial = trials.draw(cause, benchmark_name, random.Random(1), base_s=lambda trial: 0.2)

    options = parser().parse_args(["train", benchmark_name, "--data-dir", "D", *trial.options, "--decompose"])

    assert options.steps_per_window >= 5
    assert options.local_batch_size == trial.batch


def said(bound, text=""):
    return {"bound": bound, "text": text}


def test_a_right_answer_names_the_planted_cause():
    assert trials.verdict("slow-copy", {}, said("copy")) == "right"
    assert trials.verdict("slow-copy", {}, said("storage")) == "wrong"
    assert trials.verdict("slow-copy", {}, said(None)) == "not known"
    assert trials.verdict("slow-copy", {}, {}) == "failed"


def test_a_slow_rank_must_be_the_planted_one(monkeypatch):
    monkeypatch.setattr(trials.socket, "gethostname", lambda: "n07")
    text = "bound by a slow rank: rank 1 on n07 needs 2.1 times"

    assert trials.verdict("slow-rank", {"rank": 1}, said("slow rank", text)) == "right"
    assert trials.verdict("slow-rank", {"rank": 0}, said("slow rank", text)) == "wrong"


def test_a_hog_on_another_core_must_be_told():
    text = "bound by the device: 97% of it its own computing, while others used 1.0 of the node's other cores"

    assert trials.verdict("hog-beside", {}, said("device", text)) == "right"
    assert trials.verdict("hog-beside", {}, said("device", text.partition(", while")[0])) == "wrong"
