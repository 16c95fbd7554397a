# SPDX-License-Identifier: Apache-2.0
"""The operators as functions: torch.ops.hkt.* with names, types and documentation. Checks and gradients are the operators' own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hkt import _transforms

Scores = tuple[Tensor, Tensor]


def level_rows(length: int, level: int) -> int:
    """The rows of a level of a sequence, ceil(length / 2**level).

    >>> [level_rows(5, level) for level in range(4)]
    [5, 3, 2, 1]
    """
    return (length + (1 << level) - 1) >> level


def attention(
    q: Sequence[Tensor],
    k: Sequence[Tensor],
    v: Tensor,
    weights: Tensor,
    causal: bool = False,
    lengths: Tensor | None = None,
    scale: float | None = None,
    start: int = 0,
) -> Scores:
    """Softmax attention over S[i, j] = scale · Σ_l weights[h, l] · ⟨q[l][i >> l], k[l][j >> l]⟩, for B sequences of T tokens.

    q: L tensors. q[0] is [B, H, n, D], the tokens start … start + n − 1 (by default all T); row r of q[l] is coarse row
        (start >> l) + r, so q[l] has ceil((start + n) / 2**l) − (start >> l) rows.
    k: L tensors; k[l] is [B, Hk, ceil(T / 2**l), D]. Hk divides H; query head h reads key head h // (H / Hk).
    v: [B, Hk, T, Dv].
    weights: λ, [H, L], of any floating type.
    causal: token i attends to tokens up to i.
    lengths: [B], the valid tokens of each sequence, int64 or int32. Rows beyond give out = 0, lse = −inf and no gradient.
    scale: 1 / √D if absent.

    Returns out [B, H, n, Dv] and lse [B, H, n], the logarithm of each row's sum of exponentials. Both are differentiable.

    >>> levels = [torch.randn(2, 4, level_rows(10, level), 8) for level in range(3)]
    >>> out, lse = attention(levels, levels, torch.randn(2, 4, 10, 8), torch.full((4, 3), 1 / 3), causal=True)
    >>> out.shape, lse.shape
    (torch.Size([2, 4, 10, 8]), torch.Size([2, 4, 10]))
    """
    if _transforms.active():
        return _transforms.attention(q, k, v, weights, causal, lengths, scale, start)
    out, lse = torch.ops.hkt.attention(q, k, v, weights, causal, lengths, scale, start)
    return out, lse


def attention_extend(
    q: Sequence[Tensor],
    k: Sequence[Tensor],
    v: Tensor,
    weights: Tensor,
    ends: Tensor,
    scale: float | None = None,
) -> Scores:
    """Causal attention of the last n tokens of each sequence to cached keys and values; for inference.

    q: L tensors. q[0] is [B, H, n, D], the tokens ends[b] − n … ends[b] − 1; row r of q[l] is coarse row
        ((ends[b] − n) >> l) + r. Rows past the last token are ignored.
    k: L caches; k[l] is [B, Hk, capacity of level l, D], of which ceil(ends[b] / 2**l) rows count, whatever lies beyond.
    v: cache, [B, Hk, capacity, Dv].
    weights: λ, [H, L].
    ends: [B], the tokens so far of each sequence, int64 or int32; below n where a batch is padded on the left.

    Returns out [B, H, n, Dv] and lse [B, H, n]; rows at negative positions are 0 and −inf. Bits depend neither on the batch
    nor on the capacity.

    >>> caches = [torch.randn(1, 2, level_rows(64, level), 8) for level in range(2)]
    >>> queries = [torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8)]  # token 36 and, on level 1, row 18
    >>> out, _ = attention_extend(queries, caches, torch.randn(1, 2, 64, 8), torch.full((2, 2), 0.5), torch.tensor([37]))
    >>> out.shape
    torch.Size([1, 2, 1, 8])
    """
    out, lse = torch.ops.hkt.attention_extend(q, k, v, weights, ends, scale)
    return out, lse


def decode(
    q: Sequence[Tensor],
    k: Sequence[Tensor],
    v: Tensor,
    weights: Tensor,
    ends: Tensor,
    coarse: Sequence[Tensor],
    scale: float | None = None,
    refresh: bool = False,
) -> Scores:
    """The same for one token a sequence, with the scores of coarse levels kept from token to token, so that fewer keys are read.

    coarse: for levels l ≥ 1, [B, H, at least ceil(T / 2**l)], float32 (float64 for float64 inputs); written where 2**l divides
        the token, else read.
    refresh: write all of them: at the first call, and after tokens came or went otherwise.
    """
    out, lse = torch.ops.hkt.decode(q, k, v, weights, ends, coarse, scale, refresh)
    return out, lse


def downsample(x: Tensor, weight: Tensor) -> Tensor:
    """Causal downsampling by two, [B, T, d] to [B, ceil(T / 2), d]: row m is Σ_r x[2m − r] · weight[r].

    weight: [taps, d, d], or [taps, d] for one factor per channel.

    >>> downsample(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([[0.5], [0.5]])).flatten()
    tensor([0.5000, 2.5000])
    """
    if _transforms.active():
        return _transforms.downsample(x, weight)
    rows: Tensor = torch.ops.hkt.downsample(x, weight)
    return rows
