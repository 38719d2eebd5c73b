"""A language model trained by torchtitan, and its log judged by our definition (models/gpt_definition.json).

Tool: https://github.com/pytorch/torchtitan, installed with the job's torch. `TORCHTITAN` in the `env:` of the
platform's file has its arguments: `--module llama3 --config llama3_8b --training.steps 100`, and where its tokenizer
and its data are; up to 0.2.2 `--job.config_file /sw/torchtitan/torchtitan/models/llama3/train_configs/llama3_8b.toml`.
Not tried: this test reads a log that others have published, of eight H200 and February 2025. The lines of August 2026
(b5bcd76) are read in its code; in 2024 they have `wps` for tps.

The arguments choose the size: llama3_8b is the definition's llama-8b, llama3_70b its llama-70b. Parameters and sequence
must be those of a size, so an 8B of shorter sequences is none. Other arguments are other numbers: choose them once.

Primary: tokens_per_s_per_device, torchtitan's tps, the median without the first two logged steps. It fails if a loss is
not finite, if the last one is not below the first, or if the tokens need more than the peak that the log names.
share_of_peak counts causal attention as half, as the definition does; torchtitan's own mfu counts it in full.
"""

from __future__ import annotations

import re
import statistics

import pytest

from catalogue import tools
from platforms.results import plain_text

STEP = r"(?<!validate )step: +(\d+).*?loss: +(\S+).*?memory: +([\d.]+)GiB.*?[tw]ps: ([\d,]+)"  # wps: in 2024
PART = r"^(?!.*validat).*(step: +\d+ +loss:|memory: +[\d.]+GiB|[tw]ps: |mfu: +[\d.]+%|tflops: )"
DONE = r"total steps (\d+).*Training completed"


@pytest.mark.workload(
    command=["sh", "-c", 'exec "$0" -m torchtitan.train $TORCHTITAN', "{python}"], launcher="torchrun"
)
def test_torchtitan(run, record):
    log = plain_text(run.log)
    model = re.search(r"size: ([\d,]+) total parameters.*?(?:sequence|maximum context) length (\d+)", log, re.DOTALL)
    assert model, "the log does not say the model's parameters and its sequence"
    name, size = tools.size_of(parameters=int(model[1].replace(",", "")), sequence=int(model[2]))
    rows = [[float(value.replace(",", "")) for value in row] for row in re.findall(STEP, log)]  # of all ranks
    rows.sort(key=lambda row: row[0])
    steps = sorted({step for step, *_ in rows})
    assert len(steps) > 3, f"{len(steps)} steps are logged: more of them, or a smaller log_freq"
    tools.assert_each_step(log, [int(step) for step, *_ in rows], STEP, PART, DONE)
    tools.assert_learns([loss for _, loss, *_ in rows if not loss < 0])  # -1, -2: a stage of a pipeline that has none
    tps = statistics.median(row[3] for row in rows if row[0] > steps[1])
    extra = {"size": name, "memory_gib": max(row[2] for row in rows)}
    peak = re.search(r"Peak FLOPS used for computing MFU: (\S+)", log)
    if peak and not re.search("fallback to A100|mfu: N/A", log):  # an unknown device; a peak that is not of its type
        extra["share_of_peak"] = share = tps * size.flop_per_token(size.sequence) / float(peak[1])
        assert share < 1, f"{tps:.0f} tokens/s would be {share:.0%} of the device's peak"
    record(run, metrics={"tokens_per_s_per_device": (tps, "tokens/s", "higher")}, **extra)
