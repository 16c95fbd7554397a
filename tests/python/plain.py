# SPDX-License-Identifier: Apache-2.0
# HKT attention and downsampling in a few lines of PyTorch, and inputs to try them on.
import math

import torch


def attention(q, k, v, weights, causal=False, lengths=None, scale=None, start=0):
    length, queries, heads = v.size(2), q[0].size(2), q[0].size(1)
    k, v = [x.repeat_interleave(heads // x.size(1), 1) for x in k], v.repeat_interleave(heads // v.size(1), 1)
    scale = 1 / math.sqrt(q[0].size(3)) if scale is None else scale
    scores = 0
    for level, (a, b) in enumerate(zip(q, k)):
        s = (a @ b.transpose(2, 3)).repeat_interleave(2**level, 2).repeat_interleave(2**level, 3)
        s = s[:, :, start % 2**level :][:, :, :queries, :length]
        scores = scores + scale * weights[:, level].view(1, -1, 1, 1) * s
    row, column = torch.arange(start, start + queries), torch.arange(length)
    allowed = row[:, None] >= column if causal else torch.ones(queries, length, dtype=torch.bool)
    if lengths is not None:
        allowed = allowed & (column < lengths[:, None])[:, None, None, :] & (row < lengths[:, None])[:, None, :, None]
    scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(3).nan_to_num() @ v, scores.logsumexp(3)


def downsample(x, weight):
    length = (x.size(1) + 1) // 2
    y = 0
    for r, w in enumerate(weight):
        past = torch.nn.functional.pad(x, (0, 0, r, 0))[:, : x.size(1)][:, ::2]
        y = y + (past @ w if w.dim() == 2 else past * w)
    assert y.size(1) == length
    return y


def inputs(batch=2, heads=3, length=21, width=8, value_width=5, levels=3, dtype=torch.float32, grad=False):
    lengths = [-(-length // 2**level) for level in range(levels)]
    q, k = ([torch.randn(batch, heads, n, width, dtype=dtype).requires_grad_(grad) for n in lengths] for _ in "qk")
    v = torch.randn(batch, heads, length, value_width, dtype=dtype).requires_grad_(grad)
    weights_dtype = dtype if dtype == torch.float64 else torch.float32
    weights = torch.randn(heads, levels, dtype=weights_dtype).softmax(1).requires_grad_(grad)
    return q, k, v, weights
