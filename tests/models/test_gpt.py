"""The language model: its shapes and FLOP by the definition, its data, and its steps beside the obvious loop."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional

from models import checks, gpt_definition
from models.benchmarks import gpt
from models.data import gpt as shards
from models.data import synthetic_gpt
from models.data.synthetic import write_set
from models.errors import DataCorrupt, DataMissing
from tests.models.jobs import Ended, Nursery, ranks_of

SIZES = gpt_definition.sizes()
SMALL = SIZES["llama-38m"]


at_night = pytest.mark.nightly(
    "models/benchmarks/gpt.py",
    "models/checkpoint.py",
    "models/memory_plan.py",
    "models/sharding.py",
    "models/steps/eager.py",
)

# --- the definition


@pytest.mark.parametrize("name", SIZES)
def test_a_size_has_the_parameters_that_it_is_known_for(name: str) -> None:
    with torch.device("meta"):
        model = gpt.Gpt(SIZES[name], SIZES[name].sequence)
    assert sum(parameter.numel() for parameter in model.parameters()) == SIZES[name].parameters


@pytest.mark.parametrize("name", ["gpt2-124m", "llama-38m"])
def test_flop_are_those_of_the_matrix_products(name: str) -> None:
    """Counted by torch, which counts no lookups, norms or activations, and attention in full."""
    from torch.utils.flop_counter import FlopCounterMode

    size, length = SIZES[name], 32
    with torch.device("meta"):
        model = gpt.Gpt(size, length)
        tokens = torch.zeros(1, length, dtype=torch.int32)
    with FlopCounterMode(display=False) as counter:
        model(tokens)
    counts = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    full_attention = counts.pop("aten.bmm")
    forward, total = gpt.flop_per_sample(name, (length,))
    assert forward == sum(counts.values()) + full_attention / 2
    assert total == 3 * forward
    assert length * size.flop_per_token(length, causal=False) == 3 * sum([*counts.values(), full_attention])


# --- the data


def _write_nanogpt(folder: Path, tokens: np.ndarray) -> None:
    folder.mkdir()
    tokens.astype("<u2").tofile(folder / "train.bin")


def test_shards_of_nanogpt_and_llm_c_are_read(tmp_path: Path) -> None:
    tokens = np.arange(100) * 7
    _write_nanogpt(tmp_path / "nanogpt", tokens)
    llm_c = tmp_path / "llm.c" / "fineweb_train_000001.bin"
    llm_c.parent.mkdir()
    header = np.zeros(256, "<i4")
    header[:3] = 20240801, 7, len(tokens)
    llm_c.write_bytes(header.tobytes() + tokens.astype("<u4").tobytes())
    for folder, name in (("nanogpt", "nanogpt"), ("llm.c", "llama3")):
        data = shards.open_folder(str(tmp_path / folder), sequence=32, vocabulary=128256)
        assert (data.kind, data.format, len(data)) == ("real", name, 3)
        x, y = data[(0, 2)]
        assert x.tolist() == tokens[64:96].tolist()
        assert y.tolist() == tokens[65:97].tolist()


def test_tokens_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    _write_nanogpt(tmp_path / "set", np.full(100, 50257))
    data = shards.open_folder(str(tmp_path / "set"), sequence=32, vocabulary=50257)
    with pytest.raises(DataCorrupt, match=r"train\.bin has the token 50,257 .* the model knows 50,257"):
        data[(0, 0)]
    write_set(str(tmp_path / "llama"), synthetic_gpt.recipe("smoke", 4, 0, "llama3"), processes=1)
    with pytest.raises(DataMissing, match="tokens of llama3, and the model knows only 50,257"):
        shards.open_folder(str(tmp_path / "llama"), sequence=64, vocabulary=50257)


def test_a_shard_that_was_cut_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_set(str(folder), synthetic_gpt.recipe("smoke", 4, 0), processes=1)
    (path,) = folder.glob("train/*.bin")
    path.write_bytes(path.read_bytes()[:-2])
    (folder / "manifest.json").unlink()
    with pytest.raises(DataCorrupt, match="its header says 257 tokens: copy it again"):
        shards.open_folder(str(folder), sequence=64, vocabulary=50257)


@pytest.mark.parametrize("file_format", synthetic_gpt.FORMATS)
def test_synthetic_tokens_are_of_the_whole_vocabulary_and_half_follow_a_rule(file_format: str) -> None:
    vocabulary = synthetic_gpt.HEADERS[file_format].vocabulary
    tokens = synthetic_gpt.tokens(0, 0, 200_000, vocabulary)
    assert tokens.min() >= 0
    assert 0.99 * vocabulary < tokens.max() < vocabulary
    follows = tokens[1:] == (tokens[:-1] * synthetic_gpt.STEP + 1) % vocabulary
    assert follows.mean() == pytest.approx(synthetic_gpt.REPEATED, abs=0.02)


def test_a_set_of_several_shards_is_whole_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_gpt, "SEQUENCES_PER_FILE", 4)
    folder = tmp_path / "set"
    manifest = write_set(str(folder), synthetic_gpt.recipe("smoke", 10, 0), processes=1)
    assert (manifest.samples, len(list(folder.glob("train/*.bin")))) == (10, 3)
    data = shards.open_folder(str(folder), sequence=64, vocabulary=50257)
    assert len(data) == 10
    assert data.path(7).endswith("000001.bin")
    (folder / "train/synthetic_train_000002.bin").unlink()
    with pytest.raises(DataMissing, match=r"holds 8 samples and its .* says 10 samples"):
        shards.open_folder(str(folder), sequence=64, vocabulary=50257)


# --- the steps


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens") / "set"
    write_set(str(folder), synthetic_gpt.recipe("smoke", None, 0), processes=1)
    return folder


STEPS = 10


def words(folder: Path, *more: object) -> list[object]:
    words = [
        "train",
        "gpt",
        "--data-dir",
        folder,
        "--size",
        "smoke",
        "--device",
        "cpu",
        "--dtype",
        "fp32",
        "--workers",
        0,
    ]
    words += ["--warmup-steps", 0, "--windows", 1, "--steps-per-window", STEPS, "--trace-losses", "losses"]
    return [*words, *more]


def trained(nursery: Nursery, folder: Path, *more: object) -> Ended:
    ended = nursery.run(*words(folder, *more))
    assert ended.code == 0, ended.errors
    return ended


@pytest.fixture(scope="module")
def alone(nursery: Nursery, tokens: Path) -> Ended:
    """Ten steps of four sequences, by one rank that accumulates."""
    return trained(nursery, tokens, "--global-batch-size", 4, "--accumulation-steps", 2)


def obvious_losses(folder: Path) -> list[float]:
    """Ten steps of the small model, written as one would on a whiteboard: no fused kernel, no module, no loader."""
    torch.manual_seed(1)
    first = gpt.build("llama-38m", (64,))
    weights = {name: value.detach().clone().requires_grad_() for name, value in first.named_parameters()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": 0.1},
            {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
    )
    data = shards.open_folder(str(folder), sequence=64, vocabulary=SMALL.vocabulary)
    from models.data.sampling import StepSampler

    batches = iter(StepSampler(len(data), local_batch=4, rank=0, world=1, accumulation=1, seed=1))
    losses = []
    for step in range(STEPS):
        samples = [data[key] for key in next(batches)]
        x = torch.stack([x for x, _ in samples])
        y = torch.stack([y for _, y in samples])
        loss = functional.cross_entropy(_logits(weights, x).flatten(0, 1), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = gpt.Schedule(STEPS, 1, 4).rate(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _logits(w: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    batch, length = tokens.shape
    width, heads, groups = SMALL.width // SMALL.heads, SMALL.heads, SMALL.kv_heads
    angles = torch.arange(length)[:, None] * 500_000 ** (-torch.arange(0, width, 2) / width)
    turn = torch.polar(torch.ones_like(angles), angles)
    mask = torch.full((length, length), -math.inf).triu(1)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name]

    def turned(x: torch.Tensor) -> torch.Tensor:
        rotated = torch.complex(x[..., : width // 2], x[..., width // 2 :]) * turn[:, None]
        return torch.cat((rotated.real, rotated.imag), -1)

    x = w["embedding.weight"][tokens.long()]
    for block in range(SMALL.layers):
        of = f"blocks.{block}."
        qkv = norm(x, of + "attention_norm.weight") @ w[of + "attention.qkv.weight"].T
        q, k, v = qkv.view(batch, length, -1, width).split([heads, groups, groups], dim=2)
        k, v = (part.repeat_interleave(heads // groups, dim=2) for part in (turned(k), v))
        scores = torch.einsum("bqhd,bkhd->bhqk", turned(q), k) / math.sqrt(width) + mask
        mixed = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)
        x = x + mixed @ w[of + "attention.out.weight"].T
        gate, up = (norm(x, of + "feed_forward_norm.weight") @ w[of + "feed_forward.up.weight"].T).chunk(2, -1)
        x = x + (gate / (1 + (-gate).exp()) * up) @ w[of + "feed_forward.down.weight"].T
    return norm(x, "norm.weight") @ w["embedding.weight"].T


@pytest.mark.slow
def test_ten_steps_are_those_of_the_obvious_loop(alone: Ended, tokens: Path) -> None:
    assert alone.losses == pytest.approx(obvious_losses(tokens), abs=2e-4)
    assert alone.losses == pytest.approx(gpt_definition.definition()["curves"][0]["losses"], abs=1e-3)


@pytest.mark.parametrize(("step", "loss", "is_right"), [(9, 0.01, True), (9, 0.03, False), (0, math.nan, False)])
def test_a_loss_beside_the_curve_of_the_definition_is_a_gate(step: int, loss: float, is_right: bool) -> None:
    (curve, *_) = gpt_definition.definition()["curves"]
    request = SimpleNamespace(
        variant=curve["size"],
        shape=(curve["sequence"],),
        global_batch_size=curve["global_batch"],
        steps=curve["steps"],
        seed=curve["seed"],
    )
    setup = SimpleNamespace(benchmark=gpt, request=request, data=SimpleNamespace(origin=curve["set"]), warnings=[])
    said: list[tuple[str, str]] = []
    meter = SimpleNamespace(wire=SimpleNamespace(problem=lambda gate, text: said.append((gate, text))))
    losses = list(curve["losses"])
    losses[step] += loss
    compared = checks.compared_losses(losses, setup, meter)["loss_curve"]
    assert compared == {"steps": curve["steps"], "difference": pytest.approx(loss, nan_ok=True)}
    assert [gate for gate, _ in said] == ([] if is_right else ["loss_curve"])
    request.seed = 2
    assert checks.compared_losses(losses, setup, meter) == {}
    assert len(said) == (not is_right)
    assert setup.warnings == ["--trace-losses: no curve of the definition has these settings; nothing was compared"]


@at_night
@pytest.mark.slow
def test_recomputed_activations_change_nothing(nursery: Nursery, tokens: Path, alone: Ended) -> None:
    more = ("--global-batch-size", 4, "--accumulation-steps", 2, "--recompute", "on")
    ended = trained(nursery, tokens, *more)
    assert ended.value("hpcml_start")["request"]["recompute"] is True
    assert ended.losses == pytest.approx(alone.losses, abs=1e-5)


@at_night
@pytest.mark.slow
@pytest.mark.parametrize(
    ("shard", "more", "tolerance"),
    [
        ("off", (), 1e-4),
        ("on", (), 1e-4),
        ("on", ("--accumulation-steps", 2), 1e-4),
        ("on", ("--recompute", "on", "--dtype", "bf16"), 0.02),
    ],
)
def test_two_ranks_learn_what_one_learns_also_with_a_share_of_the_model_each(
    nursery: Nursery, tokens: Path, alone: Ended, shard: str, more: tuple[object, ...], tolerance: float, tmp_path: Path
) -> None:
    more = ("--global-batch-size", 4, "--shard", shard, "--checkpoint", tmp_path, *more)
    ranks = nursery.together(*((words(tokens, *more), environ) for environ in ranks_of("slurm")))
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].errors + ranks[1].errors
    summary = ranks[0].value("hpcml_summary")
    assert ranks[0].losses == pytest.approx(alone.losses, abs=tolerance)
    assert summary["loss_curve"]["steps"] == STEPS
    assert summary["parameters_identical"] is (None if shard == "on" else True)
    checkpoint = summary["checkpoint"]
    assert checkpoint["identical"] is True
    assert checkpoint["bytes"] > 12 * SMALL.parameters
    assert min(checkpoint["write_s"], checkpoint["read_s"]) > 0
    assert not list(tmp_path.iterdir())


# --- the memory


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("variant", ["gpt2-124m", "llama-38m"])
def test_the_estimate_of_a_sequence_is_what_the_backward_pass_keeps(variant: str, dtype: str) -> None:
    """Beside the gradients of the logits; kernels' own workspace comes on top."""
    model = gpt.build(variant, (256,))

    def kept(length: int) -> int:
        sizes: dict[int, int] = {}
        alive = []

        def pack(values: torch.Tensor) -> torch.Tensor:
            sizes[values.untyped_storage().data_ptr()] = values.untyped_storage().nbytes()
            alive.append(values)
            return values

        tokens = torch.zeros(1, length, dtype=torch.int32)
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda values: values)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            gpt.criterion(model(tokens), tokens.long())
        return sum(sizes.values())

    counted = (kept(256) - kept(128)) / 128
    gradients = 8 * SIZES[variant].vocabulary  # of the loss and of the softmax
    estimated = gpt.sample_bytes(dtype, variant, (128,)) / 128
    assert counted + gradients == pytest.approx(estimated, rel=0.1)
