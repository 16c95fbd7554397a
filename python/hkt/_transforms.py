# SPDX-License-Identifier: Apache-2.0
"""The operators under torch.func (grad, vmap, jacrev), which takes autograd functions written in Python only.

vmap calls the operator once for each element: the operators have a batch of their own, which is the fast way.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def active() -> bool:
    """Whether a transform of torch.func is being applied; never where torch.compile traces, which handles them itself."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def unwrapped(x: Tensor) -> Tensor:
    """What the transforms have wrapped; under vmap with the dimensions that they hide."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x


def _each(call: Callable[..., Any], batch: int, in_dims: Sequence[int | None], inputs: Sequence[Any]) -> Any:
    """The results of call for every element of the batch, stacked, and the dimension they are stacked in."""
    results = []
    for i in range(batch):
        one = [x if dim is None else x.select(dim, i) for x, dim in zip(inputs, in_dims, strict=True)]
        results.append(call(*one))
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True)), (0,) * len(results[0])


class _Function(torch.autograd.Function):
    """No derivative in forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError("hkt's operators have no forward-mode derivative; use torch.func.grad, vjp or jacrev.")


def _apply(function: Any, *inputs: Any) -> Any:
    return function.apply(*inputs)  # which has no types in torch 2.11


class _Attention(_Function):
    """Inputs: the number of levels, causal, scale, start, lengths, weights, v, then the levels of q and those of k."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        levels, causal, scale, start, lengths, weights, v, *rows = inputs
        return torch.ops.hkt.attention(rows[:levels], rows[levels:], v, weights, causal, lengths, scale, start)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.options, ctx.has_lengths = inputs[:4], inputs[4] is not None
        out, lse = output
        ctx.save_for_backward(*inputs[4 if ctx.has_lengths else 5 :], out, lse)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        saved = list(ctx.saved_tensors)
        lengths = saved.pop(0) if ctx.has_lengths else None
        weights, v, *rows, out, lse = saved
        grad_out, grad_lse = grads
        results = _apply(_AttentionBackward, *ctx.options, lengths, weights, v, grad_out, grad_lse, out, lse, *rows)
        return None, None, None, None, None, *results

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _each(_Attention.apply, info.batch_size, in_dims, inputs)


class _AttentionBackward(_Function):
    """The gradients of weights, v, the levels of q and those of k. It has no derivative."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        levels, causal, scale, start, lengths, weights, v, grad_out, grad_lse, out, lse, *rows = inputs
        q, k = rows[:levels], rows[levels:]
        grad_q, grad_k, grad_v, grad_weights = torch.ops.hkt.attention_backward(
            grad_out, grad_lse, q, k, v, weights, out, lse, causal, lengths, scale, start
        )
        return (grad_weights, grad_v, *grad_q, *grad_k)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("hkt.attention: the second derivative is not implemented.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _each(_AttentionBackward.apply, info.batch_size, in_dims, inputs)


class _Downsample(_Function):
    @staticmethod
    def forward(x: Any, weight: Any) -> Any:
        return torch.ops.hkt.downsample(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _apply(_DownsampleBackward, *grads, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        (rows,), (dim,) = _each(lambda *one: (_apply(_Downsample, *one),), info.batch_size, in_dims, inputs)
        return rows, dim


class _DownsampleBackward(_Function):
    @staticmethod
    def forward(grad: Any, x: Any, weight: Any) -> Any:
        return torch.ops.hkt.downsample_backward(grad, x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("hkt.downsample: the second derivative is not implemented.")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _each(_DownsampleBackward.apply, info.batch_size, in_dims, inputs)


def attention(
    q: Sequence[Tensor],
    k: Sequence[Tensor],
    v: Tensor,
    weights: Tensor,
    causal: bool,
    lengths: Tensor | None,
    scale: float | None,
    start: int,
) -> tuple[Tensor, Tensor]:
    out, lse = _apply(_Attention, len(q), causal, scale, start, lengths, weights, v, *q, *k)
    return out, lse


def downsample(x: Tensor, weight: Tensor) -> Tensor:
    rows: Tensor = _apply(_Downsample, x, weight)
    return rows
