# SPDX-License-Identifier: Apache-2.0
# The operators as PyTorch sees them: registration, torch.compile, autocast, strides, and what is said of bad input.
import pytest
import torch
from torch.library import opcheck

import plain

attention = torch.ops.hkt.attention.default
downsample = torch.ops.hkt.downsample.default
dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def tensors(q, k, v, weights):
    return [*q, *k, v, weights]


def gradients(out, wanted):
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape).to(out.dtype)
    return torch.autograd.grad((out * weight).sum(), wanted)


# What PyTorch requires of an operator


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", dtypes)
def test_attention_is_a_proper_operator(dtype, grad):
    opcheck(attention, plain.inputs(dtype=dtype, grad=grad))


@pytest.mark.parametrize("options", [
    dict(causal=True),
    dict(lengths=torch.tensor([21, 0])),
    dict(causal=True, lengths=torch.tensor([5, 20]), scale=0.7),
])
@pytest.mark.parametrize("levels", [1, 4])
def test_attention_options_are_proper_too(levels, options):
    opcheck(attention, plain.inputs(levels=levels, grad=True), options)


@pytest.mark.parametrize("length", [0, 1])
def test_attention_of_nearly_nothing_is_proper_too(length):
    opcheck(attention, plain.inputs(length=length, grad=True))


@pytest.mark.parametrize("shape", [(2, 6, 6), (3, 6)], ids=["dense", "depthwise"])
@pytest.mark.parametrize("dtype", dtypes)
def test_downsample_is_a_proper_operator(dtype, shape):
    x = torch.randn(2, 9, 6, dtype=dtype, requires_grad=True)
    opcheck(downsample, (x, torch.randn(shape, dtype=dtype, requires_grad=True)))


# Values, against a few lines of plain PyTorch


@pytest.mark.parametrize("options", [dict(), dict(causal=True), dict(lengths=torch.tensor([13, 0]), scale=0.3)])
def test_attention_equals_plain_pytorch(options):
    arguments = plain.inputs(dtype=torch.float64, grad=True)
    out, lse = attention(*arguments, **options)
    expected, expected_lse = plain.attention(*arguments, **options)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, expected_lse)
    if "lengths" not in options:  # rows of padding give plain PyTorch NaN gradients
        for mine, theirs in zip(gradients(out, tensors(*arguments)), gradients(expected, tensors(*arguments))):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("length", [1, 8, 9])
@pytest.mark.parametrize("shape", [(2, 6, 6), (5, 6)], ids=["dense", "depthwise"])
def test_downsample_equals_plain_pytorch(shape, length):
    x = torch.randn(2, length, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    out, expected = downsample(x, weight), plain.downsample(x, weight)
    torch.testing.assert_close(out, expected)
    for mine, theirs in zip(gradients(out, [x, weight]), gradients(expected, [x, weight])):
        torch.testing.assert_close(mine, theirs)


def test_strided_inputs_give_the_same_numbers():
    q, k, v, weights = plain.inputs()
    expected = attention(q, k, v, weights, causal=True)

    def as_model_has_it(x):  # [B, T, H, D] in memory
        return x.transpose(1, 2).contiguous().transpose(1, 2)

    def last_stride_two(x):
        return torch.stack([x, x], -1)[..., 0]

    for change in (as_model_has_it, last_stride_two):
        result = attention([change(x) for x in q], [change(x) for x in k], change(v), weights, causal=True)
        assert all(torch.equal(a, b) for a, b in zip(result, expected))


@pytest.mark.parametrize("dtype", dtypes)
@pytest.mark.parametrize("weights_dtype", dtypes)
def test_weights_of_any_floating_type(dtype, weights_dtype):
    """A model in bfloat16 has its weights in it, too: they are converted inside, and so is their gradient."""
    q, k, v, weights = plain.inputs(dtype=dtype, grad=True)
    given = weights.detach().to(weights_dtype).requires_grad_()
    taken = given.detach().to(weights.dtype).requires_grad_()
    for causal in (False, True):
        out, lse = attention(q, k, v, given, causal)
        expected, expected_lse = attention(q, k, v, taken, causal)
        assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
        grad = gradients(out, [given])[0]
        assert grad.dtype == weights_dtype and torch.equal(grad, gradients(expected, [taken])[0].to(weights_dtype))
    opcheck(attention, (q, k, v, given))
    with torch.inference_mode():
        assert torch.equal(attention(q, k, v, given, True)[0], expected)


def test_a_module_in_bfloat16():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.alpha = torch.nn.Linear(8, 24), torch.nn.Parameter(torch.zeros(2, 1))

        def forward(self, x):
            q, k, v = self.project(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            return attention([q], [k], v, self.alpha.softmax(1))[0]

    layer = Layer().bfloat16()
    layer(torch.randn(2, 7, 8, dtype=torch.bfloat16)).float().pow(2).sum().backward()
    assert layer.alpha.grad.dtype == torch.bfloat16 and layer.project.weight.grad.isfinite().all()


def test_lengths_of_either_integer_type():
    arguments = plain.inputs()
    lengths = torch.tensor([13, 0])
    for mine, theirs in zip(attention(*arguments, lengths=lengths.int()), attention(*arguments, lengths=lengths)):
        assert torch.equal(mine, theirs)
    opcheck(attention, arguments, dict(lengths=lengths.int()))


# torch.compile


def model(x, filters, projection, weights):
    q, k = [], []
    for level in range(weights.size(1)):
        if level:
            x = downsample(x, filters[level - 1])
        heads = (x @ projection).unflatten(2, (-1, weights.size(0), 8)).permute(2, 0, 3, 1, 4)
        q.append(heads[0])
        k.append(heads[1])
        v = heads[2] if level == 0 else v
    return attention(q, k, v, weights, causal=True)[0].transpose(1, 2).flatten(2).relu()


def model_inputs(length):
    x = torch.randn(2, length, 16)
    filters = torch.randn(2, 2, 16, 16) / 4
    return [t.requires_grad_() for t in (x, filters, torch.randn(16, 48) / 4, torch.rand(2, 3))]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_equals_eager(backend):
    arguments = model_inputs(21)
    eager = model(*arguments)
    compiled = torch.compile(model, fullgraph=True, backend=backend)(*arguments)
    torch.testing.assert_close(compiled, eager)
    for mine, theirs in zip(gradients(compiled, arguments), gradients(eager, arguments)):
        torch.testing.assert_close(mine, theirs)


def test_compiled_once_for_every_length():
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.compiler.set_stance("default"):
        arguments = model_inputs(21)
        torch._dynamo.mark_dynamic(arguments[0], 1)
        compiled(*arguments)
    with torch.compiler.set_stance("fail_on_recompile"):
        for length in (22, 37, 64):
            arguments = model_inputs(length)
            eager, result = model(*arguments), compiled(*arguments)
            torch.testing.assert_close(result, eager)
            for mine, theirs in zip(gradients(result, arguments), gradients(eager, arguments)):
                torch.testing.assert_close(mine, theirs)


# Autocast


def test_autocast_lowers_all_but_the_weights():
    q, k, v, weights = plain.inputs(grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = attention(q, k, v, weights)
    assert out.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    low = [[x.bfloat16() for x in q], [x.bfloat16() for x in k], v.bfloat16(), weights]
    assert torch.equal(out, attention(*low)[0])
    assert all(g.dtype == torch.float32 for g in gradients(out, tensors(q, k, v, weights)))


def test_autocast_lowers_downsample():
    x, weight = torch.randn(2, 9, 6, requires_grad=True), torch.randn(2, 6, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = downsample(x, weight)
    assert out.dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 for g in gradients(out, [x, weight]))


# What is refused


@pytest.mark.parametrize("operator, arguments", [
    (lambda *a: attention(*a)[0], plain.inputs(grad=True)),
    (downsample, (torch.randn(2, 9, 6, requires_grad=True), torch.randn(2, 6, 6, requires_grad=True))),
], ids=["attention", "downsample"])
def test_second_derivative_is_refused(operator, arguments):
    wanted = arguments[0] if torch.is_tensor(arguments[0]) else arguments[0][0]
    first = torch.autograd.grad(operator(*arguments).pow(2).sum(), wanted, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="second derivative"):
        first.sum().backward()


def bad_attention():
    def case(name, message, make):
        return pytest.param(make, message, id=name)

    def with_level(levels, index, tensor):
        return [tensor if i == index else x for i, x in enumerate(levels)]

    return [
        case("no levels", "q has 0", lambda q, k, v, w: ([], [], v, w)),
        case("nine levels", "q has 9", lambda q, k, v, w: plain.inputs(levels=9)),
        case("fewer levels of k", "k has 2", lambda q, k, v, w: (q, k[:2], v, w)),
        case("rank of q", r"q\[1\]", lambda q, k, v, w: (with_level(q, 1, q[1][0]), k, v, w)),
        case("rank of v", r"\bv\b", lambda q, k, v, w: (q, k, v[0], w)),
        case("rank of weights", "weights", lambda q, k, v, w: (q, k, v, w[0])),
        case("integers", "v is Int", lambda q, k, v, w: ([x.int() for x in q], [x.int() for x in k], v.int(), w)),
        case("dtype of k", r"k\[0\]", lambda q, k, v, w: (q, with_level(k, 0, k[0].double()), v, w)),
        case("dtype of v", r"\bv\b", lambda q, k, v, w: (q, k, v.half(), w)),
        case("dtype of weights", "weights is Int", lambda q, k, v, w: (q, k, v, w.int())),
        case("device of v", r"\bv\b", lambda q, k, v, w: (q, k, v.to("meta"), w)),
        case("device of k", r"k\[2\]", lambda q, k, v, w: (q, with_level(k, 2, k[2].to("meta")), v, w)),
        case("device of weights", "weights", lambda q, k, v, w: (q, k, v, w.to("meta"))),
        case("short level", r"q\[1\].*11", lambda q, k, v, w: (with_level(q, 1, q[1][:, :, :10]), k, v, w)),
        case("long level", r"k\[2\].*6", lambda q, k, v, w: (q, with_level(k, 2, k[1]), v, w)),
        case("length of v", r"\bv\b|q\[0\]", lambda q, k, v, w: (q, k, v[:, :, :20], w)),
        case("heads of k", r"k\[0\]", lambda q, k, v, w: (q, with_level(k, 0, k[0][:, :2]), v, w)),
        case("heads of v", r"\bv\b", lambda q, k, v, w: (q, k, v[:, :2], w)),
        case("batch of q", r"q\[1\]", lambda q, k, v, w: (with_level(q, 1, q[1][:1]), k, v, w)),
        case("width of k", r"k\[1\]", lambda q, k, v, w: (q, with_level(k, 1, k[1][..., :4]), v, w)),
        case("heads of weights", "weights", lambda q, k, v, w: (q, k, v, w[:2])),
        case("levels of weights", "weights", lambda q, k, v, w: (q, k, v, w[:, :2])),
        case("width 0", r"q\[0\].*0.*256", lambda q, k, v, w: plain.inputs(width=0)),
        case("width 257", r"q\[0\].*257.*256", lambda q, k, v, w: plain.inputs(width=257)),
        case("value width 0", r"\bv\b.*256", lambda q, k, v, w: plain.inputs(value_width=0)),
        case("value width 257", r"\bv\b.*257.*256", lambda q, k, v, w: plain.inputs(value_width=257)),
    ]


@pytest.mark.parametrize("make, message", bad_attention())
def test_bad_attention_is_refused(make, message):
    with pytest.raises(RuntimeError, match=message):
        attention(*make(*plain.inputs()))


@pytest.mark.parametrize("lengths", [
    torch.tensor([22, 3]),
    torch.tensor([-1, 3]),
    torch.tensor([3]),
    torch.tensor([[3, 4]]),
    torch.tensor([3.0, 4.0]),
    torch.tensor([3, 4], device="meta"),
], ids=["beyond T", "negative", "too few", "rank", "dtype", "device"])
def test_bad_lengths_are_refused(lengths):
    with pytest.raises(RuntimeError, match="lengths"):
        attention(*plain.inputs(), lengths=lengths)


@pytest.mark.parametrize("x, weight, message", [
    (torch.randn(9, 6), torch.randn(2, 6, 6), r"\bx\b"),
    (torch.randn(2, 9, 6), torch.randn(6), "weight"),
    (torch.randn(2, 9, 6), torch.randn(2, 6, 5), "weight"),
    (torch.randn(2, 9, 6), torch.randn(2, 5), "weight"),
    (torch.randn(2, 9, 6), torch.randn(0, 6), "weight"),
    (torch.randn(2, 9, 6), torch.randn(2, 6).double(), "weight"),
    (torch.randn(2, 9, 6), torch.randn(2, 6, device="meta"), "weight"),
    (torch.ones(2, 9, 6, dtype=torch.int), torch.ones(2, 6, dtype=torch.int), r"\bx\b"),
], ids=["rank of x", "rank", "width dense", "width depthwise", "no taps", "dtype", "device", "integers"])
def test_bad_downsample_is_refused(x, weight, message):
    with pytest.raises(RuntimeError, match="hkt::downsample: .*" + message):
        downsample(x, weight)


# Derivatives


@pytest.mark.parametrize("options", [dict(), dict(causal=True), dict(lengths=torch.tensor([5, 0]), scale=0.4)])
def test_attention_gradients_are_those_of_finite_differences(options):
    q, k, v, weights = plain.inputs(length=7, dtype=torch.float64, grad=True)
    levels = len(q)

    def forward(*flat):
        return attention(flat[:levels], flat[levels:2 * levels], flat[-2], flat[-1], **options)[0]

    assert torch.autograd.gradcheck(forward, tensors(q, k, v, weights))


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 4)], ids=["dense", "depthwise"])
def test_downsample_gradients_are_those_of_finite_differences(shape):
    x = torch.randn(2, 7, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(downsample, (x, torch.randn(shape, dtype=torch.float64, requires_grad=True)))
