"""A language model trained by Megatron-LM, and its log judged by our definition (models/gpt_definition.json).

Tool: https://github.com/NVIDIA/Megatron-LM, with what it needs beside the job's torch. `MEGATRON` in the `env:` of the
platform's file has its script and arguments: `/sw/Megatron-LM/pretrain_gpt.py --num-layers 32 … --bf16 --log-interval
10`. Not tried: this test reads a log that others have published, of core 0.12, one GPU and a sequence that is not the
definition's. The lines of August 2026 (d98e8a6) are read in its code.

The arguments choose the size: layers, widths, heads, the sequence and the vocabulary (as padded, within 2 %) must be
those of one in the definition. Other arguments are other numbers: choose them once.

Primary: tokens_per_s_per_device, the median of the logged lines but the first. It fails if an iteration was skipped or
NaN, so take --bf16: fp16 looks for its loss scale by skipping some; and if the last loss is not below the first. The
log names no peak: tflop_per_s_per_device counts causal attention as half, as the definition does.
"""

from __future__ import annotations

import functools
import re
import statistics

import pytest

from catalogue import tools
from platforms.results import field, numbers, plain_text

MEGATRON = """
[ -n "$MEGATRON" ] || { echo "MEGATRON in the platform's env: names no pretrain_gpt.py: catalogue/test_megatron.py"
  exit 127; }
exec "$0" $MEGATRON
"""
LINE = r"^.* iteration +(\d+)/ *\d+ \|(.* number of nan iterations: +\d+ \|.*)$"
PART = r" iteration +\d+/ *\d+ |elapsed time per iteration|number of (skipped|nan) iterations"
DONE = r" iteration +\d+/ *(\d+) \|.*\[after training is done\]"


@pytest.mark.workload(command=["sh", "-c", MEGATRON, "{python}"], launcher="torchrun")
def test_megatron(run, record):
    log = plain_text(run.log)
    read = functools.partial(field, where=run.log, tool="Megatron-LM, core 0.5 and newer, and not Megatron-DeepSpeed")
    of = functools.partial(read, dict(re.findall(r"^ +(\w+) \.+ (\S+)$", log, re.MULTILINE)))  # what it was asked for
    heads, devices = int(of("num_attention_heads")), int(of("world_size"))
    grouped = of("group_query_attention") == "True"
    name, size = tools.size_of(
        **{"layers": int(of("num_layers")), "width": int(of("hidden_size")), "hidden": int(of("ffn_hidden_size"))},
        **{"heads": heads, "kv_heads": int(of("num_query_groups")) if grouped else heads},
        **{"family": "llama" if of("swiglu") == "True" else "gpt2", "sequence": int(of("seq_length"))},
        tied=of("untie_embeddings_and_output_weights") == "False",
    )
    padded = set(numbers(log, r"padded vocab .*\(new size: (\d+)\)"))
    right = all(size.vocabulary <= vocabulary < 1.02 * size.vocabulary for vocabulary in padded)
    assert right, f"{name} has a vocabulary of {size.vocabulary}"
    lines = re.findall(LINE, log, re.MULTILINE)
    rows = [dict(re.findall(r"(\w[^|:]*): +(\S+) +\|", line)) for _, line in lines]
    assert len(rows) > 3, f"{len(rows)} lines of iterations are logged: more of them, or a smaller --log-interval"
    tools.assert_each_step(log, [int(iteration) for iteration, _ in lines], LINE, PART, DONE)
    for fault in ("number of skipped iterations", "number of nan iterations"):
        count = sum(int(read(row, fault)) for row in rows)
        assert count == 0, f"{fault}: {count}"
    tools.assert_learns([float(row.get("lm loss", "nan")) for row in rows])  # of a NaN it prints none
    times = [float(read(row, "elapsed time per iteration (ms)")) / 1000 for row in rows]
    batches = [int(read(row, "global batch size")) for row in rows]
    rates = [batch * size.sequence / devices / seconds for batch, seconds in zip(batches, times, strict=True)]
    rate = statistics.median(rates[1:])
    record(
        run,
        metrics={"tokens_per_s_per_device": (rate, "tokens/s", "higher")},
        **{"size": name, "tflop_per_s_per_device": rate * size.flop_per_token(size.sequence) / 1e12},
        **{"iteration_s": statistics.median(times[1:]), "memory_mib": max(numbers(log, r"max allocated: ([\d.]+)"))},
    )
