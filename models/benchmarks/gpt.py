"""Language models: GPT-2 and Llama 3 in the shapes of models/gpt_definition.json, which predict the next token.

References: Radford et al. 2019 (GPT-2: learned positions, LayerNorm, GELU, biases); Grattafiori et al. 2024 (Llama 3:
RoPE, RMSNorm, SwiGLU, grouped queries). The training follows Brown et al. 2020, table 2.1 and appendix B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from models.data.gpt import open_folder
from models.errors import ImpossibleRequest
from models.gpt_definition import GptSize, definition, sizes
from models.settings import QUICK_WINDOW_S, Configuration, Shape, Size

WORKLOAD_VERSION = 1  # raise it with each change of what is computed, read or timed
MLPERF_NAME = "llama31_8b"
MLPERF_RULES = ("training", "5.1.0")

DEFINED = sizes()
VARIANTS = {
    "gpt2-124m": "GPT-2 with 124,439,808 parameters",
    "llama-1b": "Llama 3.2 with 1,235,814,400 parameters",
    "llama-8b": "Llama 3.1 with 8,030,261,248 parameters",
    "llama-38m": "Llama's layers in a size for trials on processors",
}
TRAINING = definition()["training"]
ROPE_BASE = TRAINING["rope_base"]  # of Llama 3; sequences of at most 8,192 tokens need no scaling
OLDEST_TORCH = (2, 4)  # the first that has RMSNorm

# --- configurations, sizes and data -----------------------------------------------------------------------------------

AUGMENTS = False
LOADER = "thread"
CHANNELS_LAST = torch.contiguous_format  # a sample has no channels
TUNED_BATCH = {"cpu": 4, "cuda": 64}
CONFIGURATIONS = {
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False),
    "tuned": Configuration(global_batch=None, dtype="auto", channels_last=False),
}
UNSUPPORTED = {
    "ipu": "its attention and its loss over a whole vocabulary have no program for IPUs here",
    "csx": "Cerebras' own Model Zoo has these models, and a test can run it as a command",
}
# The shape is the sequence; None: that of the variant.
_SMOKE = Size((64,), 2, 3, 4, local_batch=2, variant="llama-38m")
SIZES: Dict[str, Dict[str, Size]] = {
    "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
    "quick": {
        "cpu": Size(None, 2, 3, 1, local_batch=2, window_s=QUICK_WINDOW_S, variant="llama-38m"),
        "cuda": Size(None, 10, 3, 50),
    },
    "subset": {"cpu": Size(None, 10, 3, 50), "cuda": Size(None, 10, 3, 50)},
    "full": {"cpu": Size(None, 10, 3, None), "cuda": Size(None, 10, 3, None)},
}


def shape_of(variant: str) -> Shape:
    return (DEFINED[variant].sequence,)


def open_data(folder: str, *, variant: str, shape: Shape, augment: bool, seed: int) -> Any:
    """Open the token shards. `augment` and `seed` have no effect, because nothing is augmented."""
    return open_folder(folder, sequence=shape[0], vocabulary=DEFINED[variant].vocabulary)


def loss_curve(request: Any, data: Any) -> Optional[Tuple[List[float], float]]:
    """Return the definition's losses for a run with these settings on this set, and their tolerance; None: unknown."""
    settings = {
        "size": request.variant,
        "sequence": request.shape[0],
        "global_batch": request.global_batch_size,
        "steps": request.steps,
        "seed": request.seed,
        "set": data.origin,
    }
    for curve in definition()["curves"]:
        if all(curve[name] == value for name, value in settings.items()):
            return curve["losses"], definition()["loss_tolerance"]
    return None


# --- the net ---------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal attention with grouped queries; RoPE turns queries and keys where `rotation` is given."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = size.heads, size.kv_heads, size.head_width
        has_bias = size.family == "gpt2"
        self.qkv = nn.Linear(size.width, (size.heads + 2 * size.kv_heads) * size.head_width, bias=has_bias)
        self.out = nn.Linear(size.width, size.width, bias=has_bias)

    def forward(self, x: torch.Tensor, rotation: Optional[Tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x).view(batch, length, -1, self.head_width).transpose(1, 2)
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        if rotation is not None:
            query, key = _rotated(query, *rotation), _rotated(key, *rotation)
        # Written out for each query: in fp32 no fast kernel of GPUs takes fewer keys than queries.
        key, value = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return out


def _rotation(length: int, head_width: int, device: torch.device) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of each position's angles: length x head_width / 2, fp32."""
    exponents = torch.arange(0, head_width, 2, device=device, dtype=torch.float32) / head_width
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), ROPE_BASE**-exponents)
    return angles.cos(), angles.sin()


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Turn each pair of numbers (i, i + head_width / 2) by its position's angle, in fp32."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1).to(x.dtype)


class FeedForward(nn.Module):
    """Two full layers with GELU between them (gpt2), or SwiGLU (llama)."""

    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.is_gated = size.family == "llama"
        self.up = nn.Linear(size.width, size.hidden * (2 if self.is_gated else 1), bias=not self.is_gated)
        self.down = nn.Linear(size.hidden, size.width, bias=not self.is_gated)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        if self.is_gated:
            gate, x = x.chunk(2, -1)
            x = functional.silu(gate) * x
        else:
            x = functional.gelu(x, approximate="tanh")
        down: torch.Tensor = self.down(x)
        return down


class Block(nn.Module):
    def __init__(self, size: GptSize) -> None:
        super().__init__()
        self.attention_norm = _norm(size)
        self.attention = Attention(size)
        self.feed_forward_norm = _norm(size)
        self.feed_forward = FeedForward(size)

    def forward(self, x: torch.Tensor, rotation: Optional[Tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        out: torch.Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


def _norm(size: GptSize) -> nn.Module:
    kind = nn.LayerNorm if size.family == "gpt2" else nn.RMSNorm
    return kind(size.width, eps=TRAINING["norm_epsilon"])


class Gpt(nn.Module):
    """Maps N x S tokens to N x S x V logits of the token that follows each.

    recompute: whether the backward pass computes each block again, so that only the blocks' inputs are kept.
    """

    def __init__(self, size: GptSize, sequence: int) -> None:
        super().__init__()
        self.size = size
        self.recompute = False
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        learned = size.family == "gpt2"
        self.positions = nn.Embedding(max(sequence, size.sequence), size.width) if learned else None
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = _norm(size)
        self.head = None if size.tied else nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.embedding(tokens)
        rotation = None
        if self.positions is not None:
            x = x + self.positions(torch.arange(length, device=tokens.device))
        else:
            rotation = _rotation(length, self.size.head_width, tokens.device)
        for block in self.blocks:
            x = checkpoint(block, x, rotation, use_reentrant=False) if self.recompute else block(x, rotation)
        x = self.norm(x)
        return self.head(x) if self.head is not None else functional.linear(x, self.embedding.weight)

    def draw(self, name: str, parameter: torch.Tensor) -> None:
        """Give a parameter its first values, as GPT-2: the last layers of a block are the smaller the more blocks."""
        with torch.no_grad():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                ends_block = name.endswith(("attention.out.weight", "feed_forward.down.weight"))
                parameter.normal_(std=0.02 / math.sqrt(2 * self.size.layers) if ends_block else 0.02)


def build(variant: str, shape: Shape) -> Gpt:
    model = build_without_weights(variant, shape).to_empty(device="cpu")
    for name, parameter in model.named_parameters():
        model.draw(name, parameter)
    return model


def build_without_weights(variant: str, shape: Shape) -> Gpt:
    """Return the model on torch's meta device. Raises ImpossibleRequest if torch is too old."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImpossibleRequest(
            f"gpt needs torch {oldest} or newer, which has RMSNorm, and this is {torch.__version__}"
        )
    with torch.device("meta"):
        return Gpt(DEFINED[variant], shape[0])


# --- FLOP and memory -------------------------------------------------------------------------------------------------


LOGIT_BYTES = 12  # of each logit: its softmax, and the gradients of loss and softmax, all fp32


def flop_per_sample(variant: str, shape: Shape) -> Tuple[float, float]:
    """Return the FLOP of one sequence, forward and forward + backward, by `flop_rule` of the definition."""
    total = shape[0] * DEFINED[variant].flop_per_token(shape[0])
    return total / 3, total


def state_bytes(dtype: str, variant: str) -> int:
    """Return the memory of one copy of the model: weights, gradients and the optimiser's two moments in fp32.

    In a 16-bit dtype the weights are there a second time.
    """
    return (16 + _converted(dtype)) * DEFINED[variant].parameters


def gathered_bytes(dtype: str, variant: str) -> int:
    """Return the memory of the largest part of a split model that each rank holds whole, with its gradients in fp32."""
    size = DEFINED[variant]
    outside = size.vocabulary * size.width * (1 if size.tied else 2)
    return (4 + (_converted(dtype) or 4)) * max(outside, size.block_weights)


def _converted(dtype: str) -> int:
    """Bytes of a weight's copy that is computed with; 0 where that is the weight itself."""
    return 2 if dtype in ("bf16", "fp16") else 0


def sample_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Estimate what the backward pass keeps of one sequence. Raises ImpossibleRequest for a shape that is no sequence.

    tests/models/test_gpt.py counts it.
    """
    size, length = _checked(variant, shape)
    width = 2 if dtype in ("bf16", "fp16") else 4
    return length * (LOGIT_BYTES * size.vocabulary + size.layers * _block_bytes(size, width))


def recomputed_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Estimate the same where each block is computed again in the backward pass: one block, and the inputs of all."""
    size, length = _checked(variant, shape)
    width = 2 if dtype in ("bf16", "fp16") else 4
    return length * (LOGIT_BYTES * size.vocabulary + _block_bytes(size, width) + size.layers * 4 * size.width)


def _checked(variant: str, shape: Shape) -> Tuple[GptSize, int]:
    if len(shape) != 1:
        raise ImpossibleRequest("a sample of gpt is a sequence: give --shape its number of tokens, as in --shape 1024")
    return DEFINED[variant], shape[0]


def _block_bytes(size: GptSize, width: int) -> int:
    """Bytes of a token: the inputs of the norms are fp32, and each number that a matrix product reads has `width`."""
    kv_width = 2 * size.kv_heads * size.head_width
    numbers = 2 * size.width + (size.width + kv_width) + size.width  # norms, queries with keys and values, mixed values
    in_fp32 = 2 * size.width
    if size.family == "llama":
        turned = size.width + kv_width // 2  # queries and keys; RoPE keeps them in fp32, too
        numbers += turned + 2 * size.width + 4 * size.hidden  # keys and values for each query; SwiGLU
        in_fp32 += turned
    else:
        numbers += 2 * size.hidden
    return width * numbers + 4 * in_fp32


# --- training --------------------------------------------------------------------------------------------------------


class Prepare:
    """Hands on the tokens: the model takes them as they were read."""

    def __init__(self, data: Any, device: Any, dtype: torch.dtype, channels_last: bool) -> None:
        pass

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens


def criterion(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of the next token, mean over all tokens of the batch, in fp32."""
    return functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())


PEAK_LEARNING_RATE = TRAINING["learning_rate"]
LAST_SHARE = TRAINING["last_share"]  # of the peak, at the end of the run
WARMUP_STEPS = TRAINING["warmup_steps"]
FEWEST_WARMUP_STEPS = TRAINING["fewest_warmup_steps"]
BETAS = tuple(TRAINING["betas"])
WEIGHT_DECAY = TRAINING["weight_decay"]  # of matrices only
LONGEST_GRADIENT = TRAINING["longest_gradient"]


class ClippedAdamW(torch.optim.AdamW):
    """AdamW that first shortens the gradient of all parameters to a norm of at most LONGEST_GRADIENT."""

    def step(self, closure: Any = None) -> Any:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, LONGEST_GRADIENT)
        return super().step(closure)


def make_optimizer(model: nn.Module) -> ClippedAdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return ClippedAdamW(groups, lr=PEAK_LEARNING_RATE, betas=BETAS, fused=True)


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each optimiser step: up to the peak in a line, then down to a tenth of it as a cosine.

    A run shorter than ten times the warm-up warms up for a tenth of its steps instead, and for ten at least: larger
    steps at new weights make the loss jump, and then no two programs have the same losses.
    """

    steps: int
    steps_per_epoch: int
    global_batch: int

    @property
    def warmup_steps(self) -> int:
        return min(WARMUP_STEPS, max(FEWEST_WARMUP_STEPS, self.steps // 10))

    def rate(self, step: int) -> float:
        """Return the learning rate of optimiser step `step`, counted from 0."""
        if step < self.warmup_steps:
            return PEAK_LEARNING_RATE * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        share = LAST_SHARE + (1 - LAST_SHARE) * (1 + math.cos(math.pi * min(1.0, done))) / 2
        return PEAK_LEARNING_RATE * share

    def mlperf(self) -> Dict[str, object]:
        """Return it under MLPerf's names (ruleset training 5.1.0, llama31_8b)."""
        return {
            "opt_name": "adamw",
            "opt_base_learning_rate": PEAK_LEARNING_RATE,
            "opt_end_learning_rate": PEAK_LEARNING_RATE * LAST_SHARE,
            "opt_learning_rate_warmup_steps": self.warmup_steps,
            "opt_learning_rate_decay_steps": self.steps - self.warmup_steps,
            "opt_learning_rate_decay_schedule": "cosine with linear warmup",
            "opt_adamw_beta_1": BETAS[0],
            "opt_adamw_beta_2": BETAS[1],
            "opt_adamw_epsilon": 1e-8,
            "opt_adamw_weight_decay": WEIGHT_DECAY,
            "opt_gradient_clip_norm": LONGEST_GRADIENT,
            "max_steps": self.steps,
        }
