# SPDX-License-Identifier: Apache-2.0
"""Inputs of every layout a view can have, against the same numbers laid out plainly, with memory that is poisoned: what an
operator did not write would show. On the CPU, and on a GPU where there is one."""
import random

import pytest
import torch

attention = torch.ops.hkt.attention.default
attention_backward = torch.ops.hkt.attention_backward.default
downsample = torch.ops.hkt.downsample.default
downsample_backward = torch.ops.hkt.downsample_backward.default
devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(autouse=True)
def poisoned():
    """What torch.empty gives is NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


def poison(device):
    if device == "cuda":  # results there come from the allocator's blocks, as their last owner left them
        blocks = [torch.full((size,), float("nan"), device=device) for size in (1 << 8, 1 << 12, 1 << 16, 1 << 20) for _ in range(8)]
        del blocks


# ---- layouts: each gives a view of these sizes


def numbers(count, dtype, device):
    return torch.randn(max(1, count), dtype=torch.float64).to(dtype).to(device)


def plain(sizes, dtype, device, _):
    return numbers(torch.Size(sizes).numel(), dtype, device).view(-1)[:torch.Size(sizes).numel()].view(sizes)


def permuted(sizes, dtype, device, draw):
    order = draw.sample(range(len(sizes)), len(sizes))
    return plain([sizes[i] for i in order], dtype, device, draw).permute([order.index(i) for i in range(len(sizes))])


def with_gaps(sizes, dtype, device, draw):
    whole = plain([size + draw.randrange(3) for size in sizes], dtype, device, draw)
    return whole[tuple(slice(whole.size(i) - size, None) for i, size in enumerate(sizes))]


def every_second(sizes, dtype, device, draw):
    return plain([*sizes[:-1], 2 * sizes[-1]], dtype, device, draw)[..., ::2]


def expanded(sizes, dtype, device, draw):
    return plain([1 if draw.random() < 0.5 else size for size in sizes], dtype, device, draw).expand(sizes)


def window(sizes, dtype, device, draw):
    """Each row is the one before it, moved by one."""
    line = numbers(sizes[-2] + sizes[-1], dtype, device)
    return line.as_strided(sizes, [0] * (len(sizes) - 2) + [1, 1], draw.randrange(2))


def any_strides(sizes, dtype, device, draw):
    strides = [draw.choice([0, 1, 1, 2, 3, 8, sizes[-1]]) for _ in sizes]
    needed = 1 + sum(max(0, size - 1) * stride for size, stride in zip(sizes, strides))
    return numbers(needed + 1, dtype, device).as_strided(sizes, strides, draw.randrange(2))


def negated(sizes, dtype, device, draw):
    return torch._neg_view(draw.choice([plain, permuted, window])(sizes, dtype, device, draw))


layouts = [plain, permuted, with_gaps, every_second, expanded, window, any_strides, negated]


def view(sizes, dtype, device, draw):
    return draw.choice(layouts)(sizes, dtype, device, draw)


# ---- the comparison


def as_written(x):
    """The same numbers, contiguous, in memory of their own."""
    return x.resolve_neg().clone(memory_format=torch.contiguous_format) if torch.is_tensor(x) else [as_written(y) for y in x]


def leaves(results):
    return torch.utils._pytree.tree_leaves(results)


def rounding(dtype):
    """What another order of additions may change, over the few rows and channels of these cases."""
    return {torch.float64: 1e-11, torch.float32: 1e-4}.get(dtype, 0.05)


def compare(results, expected, dtype, exact=False):
    """dtype: of the inputs, by which kernels round in between; a layout may decide which of them run."""
    for i, (found, right) in enumerate(zip(leaves(results), leaves(expected), strict=True)):
        assert found.dtype == right.dtype and found.shape == right.shape
        assert found.numel() == 0 or found.size(-1) == 1 or found.stride(-1) == 1 or found.dim() < 4
        assert not found.isnan().any(), f"result {i} holds memory that was not written"
        if exact:
            assert torch.equal(found, right), f"result {i}"
        else:
            largest = max(1, right.abs().max().item()) if right.numel() else 1
            torch.testing.assert_close(found, right, rtol=rounding(dtype), atol=rounding(dtype) * largest)


def attention_case(draw, device):
    dtype = draw.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
    batch, heads, length, levels = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 20), draw.randint(1, 4)
    width, value_width = draw.choice([1, 3, 8, 16]), draw.choice([1, 5, 8, 16])
    rows = [-(-length // 2**level) for level in range(levels)]
    q, k = ([view([batch, heads, n, width], dtype, device, draw) for n in rows] for _ in "qk")
    v, grad_out = (view([batch, heads, length, value_width], dtype, device, draw) for _ in "vg")
    weights = view([heads, levels], draw.choice([dtype, torch.float32]), device, draw)
    lengths = draw.choice([None, torch.int64, torch.int32])
    if lengths is not None:
        lengths = torch.tensor([[draw.randint(0, length)] * 2 for _ in range(batch)], dtype=lengths, device=device)[:, 0]
    return q, k, v, weights, grad_out, draw.random() < 0.5, lengths


@pytest.mark.parametrize("device", devices)
@pytest.mark.parametrize("block", range(8))
def test_attention_of_any_layout(block, device):
    for seed in range(block * 60, block * 60 + 60):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        q, k, v, weights, grad_out, causal, lengths = attention_case(draw, device)
        written = [as_written(x) for x in (q, k, v, weights)]
        try:
            poison(device)
            out, lse = attention(q, k, v, weights, causal, lengths)
            expected = attention(*written, causal, lengths)
            compare([out, lse.nan_to_num(neginf=0)], [expected[0], expected[1].nan_to_num(neginf=0)], v.dtype,
                    device == "cpu")
            poison(device)
            found = attention_backward(grad_out, None, q, k, v, weights, out, lse, causal, lengths, None, 0)
            right = attention_backward(as_written(grad_out), None, *written, *expected, causal, lengths, None, 0)
            compare(found, right, v.dtype, device == "cpu")
            shapes = attention_backward(grad_out.to("meta"), None,
                                        *[x.to("meta") if torch.is_tensor(x) else [y.to("meta") for y in x]
                                          for x in (q, k, v, weights, out, lse)], causal, None, None, 0)
            assert [x.shape for x in leaves(shapes)] == [x.shape for x in leaves(found)]
        except Exception:
            print(f"seed {seed}, {device}: q {[(x.shape, x.stride()) for x in q]}, v {v.shape, v.stride()}, {v.dtype}")
            raise


@pytest.mark.parametrize("device", devices)
def test_downsample_of_any_layout(device):
    for seed in range(200):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        dtype = draw.choice([torch.float32, torch.float64, torch.bfloat16])
        batch, length, width, taps = draw.randint(1, 3), draw.randint(1, 9), draw.choice([1, 3, 8]), draw.randint(1, 4)
        x = view([batch, length, width], dtype, device, draw)
        weight = view([taps, width, width] if draw.random() < 0.5 else [taps, width], dtype, device, draw)
        grad = view([batch, (length + 1) // 2, width], dtype, device, draw)
        poison(device)
        compare(downsample(x, weight), downsample(as_written(x), as_written(weight)), dtype)
        compare(downsample_backward(grad, x, weight), downsample_backward(*map(as_written, (grad, x, weight))), dtype)


@pytest.mark.parametrize("device", devices)
def test_a_sliding_window_of_ones_gives_ones(device):
    q = torch.randn(1, 1, 4, 8, device=device)
    v = torch.ones(11, device=device).unfold(0, 8, 1)[None, None]
    out = attention([q], [q], v, torch.ones(1, 1, device=device))[0]
    torch.testing.assert_close(out, torch.ones_like(out))
    assert out.is_contiguous()


@pytest.mark.parametrize("device", devices)
def test_layouts_of_models_are_kept(device):
    """[B, T, H, D] in memory, packed with others or not: out and gradients lie in the same order, so nothing is copied."""
    packed = torch.randn(2, 6, 3, 2, 8, device=device)  # [B, T, q k v, H, D]
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    out, lse = attention([q], [k], v, torch.ones(2, 1, device=device))
    grads = attention_backward(out, None, [q], [k], v, torch.ones(2, 1, device=device), out, lse, False, None, None, 0)
    for result in (out, *leaves(grads)[:3]):
        assert result.transpose(1, 2).is_contiguous()
