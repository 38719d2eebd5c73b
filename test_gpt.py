"""Language models, GPT-2 and Llama 3: AdamW, the next token of sequences (docs/language-model.md)."""

from __future__ import annotations

import pytest


@pytest.mark.workload(benchmark="gpt")
def test_gpt(run, record):
    assert not run.problems
    assert run.summary["optimizer_steps"] >= sum(window.steps for window in run.windows)
    record(run)
