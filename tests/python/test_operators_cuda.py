# SPDX-License-Identifier: Apache-2.0
# The operators on a GPU, as PyTorch sees them: registration, torch.compile, autocast, determinism and CUDA graphs.
import pytest
import torch
from torch.library import opcheck

import plain

attention = torch.ops.hkt.attention.default
downsample = torch.ops.hkt.downsample.default
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


def inputs(dtype=torch.bfloat16, grad=True, **shape):
    q, k, v, weights = plain.inputs(dtype=dtype, **{"width": 64, "value_width": 64, "length": 150, **shape})

    def on_gpu(x):
        return x.cuda().requires_grad_(grad)

    return [on_gpu(x) for x in q], [on_gpu(x) for x in k], on_gpu(v), on_gpu(weights)


def tensors(q, k, v, weights):
    return [*q, *k, v, weights]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [dict(), dict(causal=True, lengths=torch.tensor([150, 20]), scale=0.1)])
def test_attention_is_a_proper_operator(dtype, options):
    options = {name: x.cuda() if torch.is_tensor(x) else x for name, x in options.items()}
    torch.use_deterministic_algorithms(True, warn_only=True)  # opcheck compares gradients bit by bit
    try:
        opcheck(attention, inputs(dtype), options)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("which", ["out", "grad_out", "v"])
def test_gradients_from_tensors_at_odd_addresses(which):
    """The fast kernels read 16 bytes at a time: what does not begin at a multiple of these goes to others."""
    q, k, v, weights = inputs(grad=False)
    out, lse = attention(q, k, v, weights)
    given = {"grad_out": torch.randn_like(out), "v": v, "out": out}
    backward = torch.ops.hkt.attention_backward.default
    expected = backward(given["grad_out"], None, q, k, given["v"], weights, given["out"], lse, False, None, None, 0)
    moved = torch.empty(given[which].numel() + 1, dtype=out.dtype, device="cuda")[1:].view_as(given[which])
    given[which] = moved.copy_(given[which])
    found = backward(given["grad_out"], None, q, k, given["v"], weights, given["out"], lse, False, None, None, 0)
    for x, y in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(expected)):
        torch.testing.assert_close(x, y, rtol=0.05, atol=0.05)


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.mem_get_info()[0] < 60e9, reason="needs 60 GB")
@pytest.mark.parametrize("dtype, width", [(torch.bfloat16, 8), (torch.float32, 1)])
def test_more_blocks_than_a_launch_takes_are_refused(dtype, width):
    """2**31 sequences of one token: the number of blocks would come out as another one. Expanded inputs need no memory."""
    x = torch.zeros(1, 1, 1, width, dtype=dtype, device="cuda").expand(2**31, 1, 1, width)
    with pytest.raises(RuntimeError, match="split the batch"):
        attention([x], [x], x, torch.ones(1, 1, device="cuda"))


@pytest.mark.parametrize("shape", [(2, 64, 64), (3, 64)], ids=["dense", "depthwise"])
def test_downsample_equals_the_cpu(shape):
    x, weight = torch.randn(2, 9, 64, dtype=torch.float64), torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(downsample(x.cuda(), weight.cuda()).cpu(), downsample(x, weight))


def test_compiled_equals_eager():
    arguments = inputs()

    def model(q, k, v, weights):
        return attention([x * 2 for x in q], k, v, weights, causal=True)[0].relu()

    eager = model(*arguments)
    compiled = torch.compile(model, fullgraph=True)(*arguments)
    torch.testing.assert_close(compiled, eager)
    direction = torch.randn_like(eager)
    mine = torch.autograd.grad(compiled, tensors(*arguments), direction)
    theirs = torch.autograd.grad(eager, tensors(*arguments), direction)
    for a, b in zip(mine, theirs):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_autocast_lowers_all_but_the_weights():
    q, k, v, weights = inputs(torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        out, lse = attention(q, k, v, weights)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    low = [x.bfloat16() for x in q], [x.bfloat16() for x in k], v.bfloat16(), weights
    assert torch.equal(out, attention(*low)[0])


def test_a_training_step_in_a_graph_equals_one_outside():
    arguments = inputs()

    def step():
        for x in tensors(*arguments):
            x.grad = None
        attention(*arguments, causal=True)[0].float().pow(2).sum().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        expected = [x.grad.clone() for x in tensors(*arguments)]
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip(tensors(*arguments), expected):
        torch.testing.assert_close(x.grad, y, rtol=2e-2, atol=2e-2)


def test_wrong_devices_are_refused():
    q, k, v, weights = inputs(grad=False)
    with pytest.raises(RuntimeError, match="weights"):
        attention(q, k, v, weights.cpu())
    with pytest.raises(RuntimeError, match="lengths"):
        attention(q, k, v, weights, lengths=torch.tensor([3, 4]))
