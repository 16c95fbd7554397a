# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens, and from a prompt to its continuation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hkt.cache import DecodingState
    from hkt.nn import LanguageModel


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: see LanguageModel.generate."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; it must be 0 or a positive number.")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (all) or a positive integer.")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1.")

    def draw(self, logits: Tensor) -> Tensor:
        """One token for each row of logits, [B]. Of equal logits the lower token counts as the more probable one."""
        values, tokens = logits.double().sort(dim=1, descending=True, stable=True)
        if self.temperature == 0:
            return tokens[:, 0]
        if self.top_k > 0:
            values, tokens = values[:, : self.top_k], tokens[:, : self.top_k]
        probability = ((values - values[:, :1]) / self.temperature).softmax(1)
        before = probability.cumsum(1) - probability
        probability = probability.masked_fill(before >= self.top_p, 0)
        drawn = torch.multinomial(probability, 1, generator=self.generator)
        return tokens.gather(1, drawn)[:, 0]


@torch.no_grad()
def generate(
    model: "LanguageModel",
    prompts: Tensor,
    max_new_tokens: int,
    lengths: Sequence[int] | None,
    sampling: Sampling,
    stop: list[int],
) -> Tensor:
    """See LanguageModel.generate."""
    from hkt.cache import DecodingState

    if prompts.dim() != 2 or prompts.size(1) == 0:
        raise ValueError(f"tokens has shape {list(prompts.shape)}; generate needs [batch, at least 1].")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens is {max_new_tokens}; it must be at least 0.")
    if max_new_tokens == 0:
        return prompts
    counts = list(lengths) if lengths is not None else [prompts.size(1)] * len(prompts)
    if len(counts) != len(prompts):
        raise ValueError(f"lengths has {len(counts)} numbers; it needs {len(prompts)}, one per prompt.")
    for count in counts:
        if not 1 <= count <= prompts.size(1):
            raise ValueError(f"lengths contains {count}; it must be from 1 to the length of the prompts, {prompts.size(1)}.")
    capacity = min(model.config.max_length, max(counts, default=0) + max_new_tokens)
    state = DecodingState(model, len(prompts), capacity)
    stops = torch.tensor(stop, dtype=torch.int64, device=prompts.device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    tokens, logits = prompts, _refill(state, prompts, counts)
    for step in range(max_new_tokens):
        drawn = sampling.draw(logits)
        if stop and step > 0:
            drawn = torch.where(ended, tokens[:, -1], drawn)
        tokens = torch.cat([tokens, drawn[:, None]], 1)
        ended = torch.isin(drawn, stops)
        counts = [count + 1 for count in counts]
        if step + 1 == max_new_tokens or (stop and bool(ended.all())):
            break
        logits = state.step(drawn) if max(state.lengths) < capacity else _refill(state, tokens, counts)
    return tokens


def _refill(state: "DecodingState", tokens: Tensor, counts: list[int]) -> Tensor:
    """The logits after the tokens, or after as many of the last ones as leave half of the room."""
    state.clear()
    most = state.capacity if max(counts) <= state.capacity else (state.capacity + 1) // 2
    kept = [min(count, most) for count in counts]
    return state.prefill(tokens[:, -max(max(kept), 1) :], kept)
