# SPDX-License-Identifier: Apache-2.0
"""Sinusoidal and rotary positions: tables of sines and cosines, computed in float64 and kept for the next call."""

from collections.abc import Callable

import torch
from torch import Tensor

from hkt import _transforms

_BASE = 10000.0
_LEAST_ROWS = 256

# Never emptied, because captured CUDA graphs read these tensors. Rows are powers of two, so that a table is replaced rarely.
_tables: dict[tuple[str, int, int, torch.dtype, torch.device], Tensor] = {}


def _sinusoids(angle: Tensor, width: int) -> Tensor:
    return torch.stack([angle.sin(), angle.cos()], 2).flatten(1)[:, :width]


def _rotations(angle: Tensor, width: int) -> Tensor:
    """[rows, 2, width]: what a row is multiplied by, and what its pairs, swapped, are multiplied by."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, cos], 2).flatten(1), torch.stack([-sin, sin], 2).flatten(1)], 1)


_KINDS: dict[str, Callable[[Tensor, int], Tensor]] = {"sinusoids": _sinusoids, "rotations": _rotations}


def _compute(kind: str, rows: int, stride: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Of positions 0, stride, 2 · stride, …; at position 10⁵ a float32 angle would have two correct decimals."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
    position = torch.arange(rows, dtype=torch.float64, device=device) * stride
    return _KINDS[kind](position[:, None] * _BASE**-exponents, width).to(dtype)


def _may_keep(device: torch.device) -> bool:
    """Not what is traced, a wrapper of torch.func, or memory of a CUDA graph that is being captured."""
    if torch.compiler.is_compiling() or _transforms.active():
        return False
    return device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def _table(kind: str, rows: int, stride: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The rows of positions 0, stride, 2 · stride, …"""
    if not _may_keep(device):
        return _compute(kind, rows, stride, width, dtype, device)
    length = _LEAST_ROWS
    while length < rows * stride:
        length *= 2
    key = (kind, length, width, dtype, device)
    table = _tables.get(key)
    if table is None:
        with torch.inference_mode(False), torch.no_grad():  # training may follow
            table = _compute(kind, length, 1, width, dtype, device)
        if type(table) is Tensor:  # and not a fake tensor
            _tables[key] = table
    return table[: rows * stride : stride]


def sinusoids(rows: int, width: int, like: Tensor) -> Tensor:
    """[rows, width]: sin(p / 10000^(2i / width)) at (p, 2i), the cosine at (p, 2i + 1)."""
    return _table("sinusoids", rows, 1, width, like.dtype, like.device)


def rotations(rows: int, stride: int, width: int, like: Tensor) -> Tensor:
    """What rotated() takes for rows at positions 0, stride, 2 · stride, …, [rows, 2, width]."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return _table("rotations", rows, stride, width, dtype, like.device)


def rotations_at(position: Tensor, end: int, width: int, like: Tensor) -> Tensor:
    """What rotated() takes for rows at the given positions below `end`, [*position.shape, 2, width]."""
    return rotations(end, 1, width, like)[position]


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """x [B, rows, heads, width] with the pairs (x[2i], x[2i + 1]) of each row rotated; rotation: [rows or B, rows; 2, width]."""
    cos, sin = rotation.unsqueeze(-3).unbind(-2)
    precise = x.to(cos.dtype)
    swapped = torch.unflatten(precise, -1, (-1, 2)).flip(-1).flatten(-2)
    return torch.addcmul(precise * cos, swapped, sin).to(x.dtype)
