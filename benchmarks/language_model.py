"""The language model beside a plain loop, beside matrix products, and beside nanoGPT's model.

    python benchmarks/language_model.py [--rounds 3] [--nanogpt CHECKOUT]

Trains llama-38m as `make bench` does, and the same net by a plain loop on tokens that lie in memory, in turns; prints
the tokens/s of both and of the first the share of what matrix products reach in the same run. With a checkout of
https://github.com/karpathy/nanoGPT its model.py gets the weights of gpt2-124m, and both make the same steps on the same
tokens, in fp32: prints the losses and the largest difference.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from models.accelerators import choose
from models.benchmarks import gpt
from models.data.synthetic import write_set
from models.data.synthetic_gpt import recipe

ROOT = Path(__file__).resolve().parents[1]
BATCH = 2
PLAIN_STEPS = 8
NANOGPT_STEPS = 5
NANOGPT_LENGTH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nanogpt", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "tokens"
        write_set(str(data), recipe("quick", 512, 0))
        beside_plain_loop(data, options.rounds)
        if options.nanogpt:
            beside_nanogpt(data, options.nanogpt)


# --- tokens/s --------------------------------------------------------------------------------------------------------


def beside_plain_loop(data: Path, rounds: int) -> None:
    ours, plain, shares = [], [], []
    for _ in range(rounds):
        summary = trained(data)
        length = gpt.DEFINED["llama-38m"].sequence
        ours.append(summary["effective_throughput"] * length)
        shares.append(summary["compute_throughput"] * summary["flop_per_sample"] / summary["product_flops"])
        plain.append(plain_rate(data))
    print(f"ours        {statistics.median(ours):8.0f} tokens/s  ({', '.join(f'{rate:.0f}' for rate in ours)})")
    print(f"plain loop  {statistics.median(plain):8.0f} tokens/s  ({', '.join(f'{rate:.0f}' for rate in plain)})")
    print(f"ours / plain = {statistics.median(ours) / statistics.median(plain):.3f}")
    print(f"ours, of matrix products = {', '.join(f'{share:.0%}' for share in shares)}")


def trained(data: Path) -> dict[str, Any]:
    words = ["train", "gpt", "--data-dir", str(data), "--size", "quick", "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-m", "models", *words], capture_output=True, text=True, cwd=ROOT, check=True
    )
    lines = [json.loads(line.split(":::MLLOG ")[1]) for line in done.stdout.splitlines() if ":::MLLOG " in line]
    (summary,) = (line["value"] for line in lines if line["key"] == "hpcml_summary")
    return dict(summary)


def plain_rate(data: Path) -> float:
    """Return the tokens/s of a loop without loader, meter, learning rates or checks."""
    accelerator = choose("cpu")
    dtype = accelerator.dtypes()[0]
    accelerator.settle(dtype)
    size = gpt.DEFINED["llama-38m"]
    model = gpt.build("llama-38m", (size.sequence,))
    optimizer = gpt.make_optimizer(model)
    (tokens, targets), *_ = batches(data, size.sequence, size.vocabulary, 1)
    begin_s = 0.0
    for step in range(2 + PLAIN_STEPS):
        if step == 2:
            begin_s = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = gpt.criterion(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return PLAIN_STEPS * BATCH * size.sequence / (time.perf_counter() - begin_s)


def batches(data: Path, length: int, vocabulary: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    samples = gpt.open_folder(str(data), sequence=length, vocabulary=vocabulary)
    groups = ([samples[(0, BATCH * number + index)] for index in range(BATCH)] for number in range(count))
    return [(torch.stack([x for x, _ in group]), torch.stack([y for _, y in group])) for group in groups]


# --- losses ----------------------------------------------------------------------------------------------------------


def beside_nanogpt(data: Path, checkout: Path) -> None:
    sys.path.insert(0, str(checkout))
    from model import GPT, GPTConfig  # nanoGPT's

    size = gpt.DEFINED["gpt2-124m"]
    torch.manual_seed(1)
    ours = gpt.build("gpt2-124m", (size.sequence,))
    theirs = GPT(GPTConfig(vocab_size=size.vocabulary, dropout=0.0, bias=True))
    weights = dict(ours.named_parameters())
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(weights[our_name(name)])
    print(f"nanoGPT's model has {sum(p.numel() for p in theirs.parameters()):,} parameters")
    steps = batches(data, NANOGPT_LENGTH, size.vocabulary, NANOGPT_STEPS)
    losses = [list(losses_of(model, is_theirs, steps)) for model, is_theirs in ((ours, False), (theirs, True))]
    for our_loss, their_loss in zip(*losses, strict=True):
        print(f"loss  ours {our_loss:.6f}  nanoGPT {their_loss:.6f}")
    print(f"largest difference = {max(abs(a - b) for a, b in zip(*losses, strict=True)):.6f}")


def our_name(name: str) -> str:
    for theirs, ours in (
        ("transformer.wte", "embedding"), ("transformer.wpe", "positions"), ("transformer.h.", "blocks."),
        ("transformer.ln_f", "norm"), ("ln_1", "attention_norm"), ("ln_2", "feed_forward_norm"),
        ("attn.c_attn", "attention.qkv"), ("attn.c_proj", "attention.out"), ("mlp.c_fc", "feed_forward.up"),
        ("mlp.c_proj", "feed_forward.down"),
    ):  # fmt: skip
        name = name.replace(theirs, ours)
    return name


def losses_of(model: Any, is_theirs: bool, steps: list[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[float]:
    optimizer = gpt.make_optimizer(model)
    rates = gpt.Schedule(len(steps), 1, BATCH)
    for step, (tokens, targets) in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = rates.rate(step)
        loss = model(tokens, targets)[1] if is_theirs else gpt.criterion(model(tokens), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


if __name__ == "__main__":
    main()
