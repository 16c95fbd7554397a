# SPDX-License-Identifier: Apache-2.0
# HKT attention and downsampling in a few lines of PyTorch, and inputs to try them on.
import math

import torch


def attention(q, k, v, weights, causal=False, lengths=None, scale=None):
    length = v.size(2)
    scale = 1 / math.sqrt(q[0].size(3)) if scale is None else scale
    scores = 0
    for level, (a, b) in enumerate(zip(q, k)):
        s = a @ b.transpose(2, 3)
        for axis in (2, 3):
            s = s.repeat_interleave(2**level, axis).narrow(axis, 0, length)
        scores = scores + scale * weights[:, level].view(1, -1, 1, 1) * s
    row = torch.arange(length)
    allowed = row[:, None] >= row if causal else torch.ones(length, length, dtype=torch.bool)
    if lengths is not None:
        valid = (row < lengths[:, None])[:, None]
        allowed = allowed & valid[..., None, :] & valid[..., :, None]
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
