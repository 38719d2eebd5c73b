"""The language models as gpt_definition.json defines them: shapes, parameters and FLOP of a token, without torch.

The file is for whoever is held to it: `models/benchmarks/gpt.py` trains these shapes, and a test around another program
(catalogue/test_torchtitan.py) judges its log by them. docs/language-model.md explains it.
"""

from __future__ import annotations

import json
import pkgutil
from dataclasses import dataclass
from typing import Any, Dict


@dataclass(frozen=True)
class GptSize:
    """A language model of the definition, and what it is trained on.

    vocabulary    ids of tokens
    sequence      tokens of a sample
    heads         of the queries; kv_heads: of keys and values, each shared by heads / kv_heads queries
    width         of a token's vector between the blocks; hidden: within a block's two or three full layers
    family        gpt2: learned positions, LayerNorm, GELU, biases; llama: RoPE, RMSNorm, SwiGLU, no biases
    tied          whether the output layer has the embedding's weights
    parameters    how many there are; tied ones count once
    global_batch  sequences of an optimiser step
    tokens        of a whole training
    """

    vocabulary: int
    sequence: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    family: str
    tied: bool
    parameters: int
    global_batch: int
    tokens: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def block_weights(self) -> int:
        """Weights of the matrix products of one block, without attention's scores, which have none."""
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_width
        full_layers = 3 if self.family == "llama" else 2
        return attention + full_layers * self.width * self.hidden

    def flop_per_token(self, sequence: int, *, causal: bool = True) -> float:
        """Return the FLOP of one token of a sequence, forward + backward, by `flop_rule` of the definition.

        causal: False counts attention in full, as PaLM's appendix B and torchtitan do.
        """
        weights = self.layers * self.block_weights + self.vocabulary * self.width
        scores = self.layers * self.width * sequence * (1 if causal else 2)  # queries x keys, and their sum of values
        return 3 * 2.0 * (weights + scores)


def definition() -> Dict[str, Any]:
    """Return the file. Works in a folder and in an archive."""
    content = pkgutil.get_data(__package__, "gpt_definition.json")
    assert content is not None
    return dict(json.loads(content))


def sizes() -> Dict[str, GptSize]:
    """Return the sizes by their names."""
    return {name: GptSize(**values) for name, values in definition()["sizes"].items()}
