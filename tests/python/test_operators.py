# SPDX-License-Identifier: Apache-2.0
# The operators as PyTorch sees them: registration, torch.compile, autocast, strides, and what is said of bad input.
import pytest
import torch
from torch.library import opcheck

import plain

attention = torch.ops.hkt.attention.default
attention_extend = torch.ops.hkt.attention_extend.default
decode = torch.ops.hkt.decode.default
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


def window(start, queries, group=2, grad=True, dtype=torch.float32, **shape):
    """Queries from `start` on, each head of keys for `group` heads."""
    q, k, v, weights = plain.inputs(dtype=dtype, **shape)
    q = [x[:, :, start >> level : -(-(start + queries) // 2**level)] for level, x in enumerate(q)]
    q = [torch.randn_like(x.repeat_interleave(group, 1)).requires_grad_(grad) for x in q]
    weights = torch.rand_like(weights.repeat_interleave(group, 0)).requires_grad_(grad)
    return q, [x.requires_grad_(grad) for x in k], v.requires_grad_(grad), weights


@pytest.mark.parametrize("start, queries", [(0, 5), (3, 1), (5, 16), (8, 0)])
def test_attention_of_a_window_is_proper_too(start, queries):
    opcheck(attention, window(start, queries), dict(causal=True, start=start))


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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("start, queries", [(0, 21), (0, 5), (3, 1), (5, 16), (13, 7)])
def test_a_window_equals_plain_pytorch(start, queries, causal):
    arguments = window(start, queries, dtype=torch.float64)
    out, lse = attention(*arguments, causal=causal, start=start)
    expected, expected_lse = plain.attention(*arguments, causal=causal, start=start)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, expected_lse)
    for mine, theirs in zip(gradients(lse.exp() + out.sum(3), tensors(*arguments)),
                            gradients(expected_lse.exp() + expected.sum(3), tensors(*arguments))):
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


def test_windows_compile_once_for_every_start():
    torch.compiler.reset()

    def forward(q, k, v, weights, start):
        return attention(q, k, v, weights, causal=True, start=start)[0].relu()

    compiled = torch.compile(forward, fullgraph=True, backend="aot_eager", dynamic=True)
    # Of the first window no level has as many rows as there are levels: dynamic shapes that are equal once are taken for one.
    for number, (start, queries) in enumerate(((5, 13), (7, 12), (11, 4))):
        arguments = window(start, queries)
        eager = forward(*arguments, start)
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            result = compiled(*arguments, start)
        torch.testing.assert_close(result, eager)
        for mine, theirs in zip(gradients(result, tensors(*arguments)), gradients(eager, tensors(*arguments))):
            torch.testing.assert_close(mine, theirs)


# Caches


def caches(queries=1, capacity=24, levels=3, group=2, dtype=torch.float32, ends=(24, 9)):
    rows = [((queries + 2**level - 2) >> level) + 1 if level else queries for level in range(levels)]
    q = [torch.randn(2, 2 * group, n, 8, dtype=dtype) for n in rows]
    k = [torch.randn(2, 2, -(-capacity // 2**level), 8, dtype=dtype) for level in range(levels)]
    v = torch.randn(2, 2, capacity, 5, dtype=dtype)
    weights = torch.rand(2 * group, levels, dtype=dtype if dtype == torch.float64 else torch.float32)
    return q, k, v, weights, torch.tensor(ends)


def coarse_rows(levels=3, capacity=24, group=2, dtype=torch.float32):
    return [torch.zeros(2, 2 * group, -(-capacity // 2**level), dtype=dtype) for level in range(1, levels)]


@pytest.mark.parametrize("dtype", dtypes)
@pytest.mark.parametrize("queries", [1, 5])
def test_extend_is_a_proper_operator(dtype, queries):
    opcheck(attention_extend, caches(queries, dtype=dtype))


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("refresh", [False, True])
def test_decode_is_a_proper_operator(levels, refresh):
    opcheck(decode, (*caches(levels=levels), coarse_rows(levels)), dict(refresh=refresh))


def test_decode_counts_as_a_change_of_its_rows():
    rows = coarse_rows()
    decode(*caches(), rows, refresh=True)
    assert [x._version for x in rows] == [1, 1]


@pytest.mark.parametrize("queries, end", [(1, 24), (3, 24), (8, 17), (1, 1)])
def test_extend_equals_plain_pytorch(queries, end):
    q, k, v, weights, ends = caches(queries, dtype=torch.float64, ends=(end, end))
    start = end - queries
    out, lse = attention_extend(q, k, v, weights, ends)
    used = [x[:, :, : ((end - 1) >> level) - (start >> level) + 1] for level, x in enumerate(q)]
    keys = [x[:, :, : -(-end // 2**level)] for level, x in enumerate(k)]
    expected, expected_lse = plain.attention(used, keys, v[:, :, :end], weights, causal=True, start=start)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(lse, expected_lse)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_extend_and_decode_compile(backend):
    torch.compiler.reset()

    def step(q, k, v, weights, ends, coarse, refresh):
        return attention_extend(q, k, v, weights, ends)[0] + decode(q, k, v, weights, ends, coarse, refresh=refresh)[0]

    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=True)
    for capacity in (24, 31):
        arguments = caches(capacity=capacity)
        mine, theirs = coarse_rows(capacity=capacity), coarse_rows(capacity=capacity)
        torch.testing.assert_close(compiled(*arguments, mine, True), step(*arguments, theirs, True))
        for a, b in zip(mine, theirs):
            torch.testing.assert_close(a, b)


def test_extend_under_autocast():
    q, k, v, weights, ends = caches(3)
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = attention_extend(q, k, v, weights, ends)
    assert out.dtype == torch.bfloat16 and lse.dtype == torch.float32
    low = attention_extend([x.bfloat16() for x in q], [x.bfloat16() for x in k], v.bfloat16(), weights, ends)
    assert torch.equal(out, low[0])


def test_extend_has_no_gradient():
    q, k, v, weights, ends = caches()
    out, _ = attention_extend([x.requires_grad_() for x in q], k, v, weights, ends)
    with pytest.raises(RuntimeError, match="attention_extend"):
        out.sum().backward()


@pytest.mark.parametrize("message, change", [
    (r"ends\[1\] is 25, must be 0 to 24", lambda q, k, v, w, e: (q, k, v, w, torch.tensor([3, 25]))),
    (r"ends\[0\] is -1", lambda q, k, v, w, e: (q, k, v, w, torch.tensor([-1, 3]))),
    (r"ends\[0\] is 24, must be 0 to 16", lambda q, k, v, w, e: (q, [k[0], k[1][:, :, :8], k[2]], v, w, e)),
    ("q has 4 heads, v has 3", lambda q, k, v, w, e: (q, k, torch.randn(2, 3, 24, 5), w, e)),
    (r"k\[1\] has 1 heads, must have 2", lambda q, k, v, w, e: (q, [k[0], k[1][:, :1], k[2]], v, w, e)),
    (r"q\[1\] has 2 rows, must have 3 for positions 5 to 8",
     lambda q, k, v, w, e: ([q[0], q[1][:, :, :2], q[2]], k, v, w, e)),
    (r"q\[1\] has 1 rows, must have at least 2", lambda q, k, v, w, e: ([q[0], q[1][:, :, :1], q[2]], k, v, w, e)),
    ("ends is Float", lambda q, k, v, w, e: (q, k, v, w, e.float())),
    ("ends has 1 entries", lambda q, k, v, w, e: (q, k, v, w, e[:1])),
    ("weights is", lambda q, k, v, w, e: (q, k, v, w[:2], e)),
])
def test_bad_extend_is_refused(message, change):
    with pytest.raises(RuntimeError, match="hkt::attention_extend: .*" + message):
        attention_extend(*change(*caches(queries=4)))


@pytest.mark.parametrize("message, queries, coarse", [
    ("q.0. has 2 rows, must have 1", 2, coarse_rows()),
    ("coarse has 1 levels, must have 2", 1, coarse_rows()[:1]),
    (r"coarse\[0\] is \[2, 4, 11\], must be .* at least 12", 1, [x[:, :, :-1] for x in coarse_rows()]),
    (r"coarse\[0\] is Double, must be Float", 1, coarse_rows(dtype=torch.float64)),
    (r"coarse\[0\] has strides .* must not overlap", 1, [x[:1, :1].expand(2, 4, -1) for x in coarse_rows()]),
])
def test_bad_decode_is_refused(message, queries, coarse):
    with pytest.raises(RuntimeError, match="hkt::decode: " + message):
        decode(*caches(queries), coarse)


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
        case("heads not a multiple", "q has 3 heads, v has 2", lambda q, k, v, w: (q, [x[:, :2] for x in k], v[:, :2], w)),
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


@pytest.mark.parametrize("start, message", [(-1, "start is -1"), (1, "start . rows must be at most"),
                                            (2**62, "start . rows must be at most"),
                                            (2**63 - 1, "start . rows must be at most")])
def test_bad_starts_are_refused(start, message):
    with pytest.raises(RuntimeError, match="hkt::attention: .*" + message):
        attention(*plain.inputs(levels=1), start=start)


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


@pytest.mark.parametrize("start, queries", [(0, 3), (3, 4), (5, 1)])
def test_gradients_of_a_window_are_those_of_finite_differences(start, queries):
    q, k, v, weights = window(start, queries, length=7, dtype=torch.float64)
    levels = len(q)

    def forward(*flat):
        out, lse = attention(flat[:levels], flat[levels : 2 * levels], flat[-2], flat[-1], causal=True, start=start)
        return out, lse

    assert torch.autograd.gradcheck(forward, tensors(q, k, v, weights))


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 4)], ids=["dense", "depthwise"])
def test_downsample_gradients_are_those_of_finite_differences(shape):
    x = torch.randn(2, 7, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(downsample, (x, torch.randn(shape, dtype=torch.float64, requires_grad=True)))
