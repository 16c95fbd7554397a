# SPDX-License-Identifier: Apache-2.0
"""The modules of hkt.nn under what PyTorch offers: compiling, exporting, autocast, torch.func, copies; and padding masks."""
import copy
import io
import pickle
import warnings

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, stack_module_state
from torch.utils.checkpoint import checkpoint

from hkt.config import ModelConfig
from hkt.nn import Classifier, Downsample, HierarchicalAttention, LanguageModel, ShortConvolution, create_model, lengths_of
from test_package_models import assert_alike, names

VOCAB = 11
small = dict(kind="language", mask="causal", positions="rotary", width=16, heads=2, blocks=1, feedforward=16, vocab=VOCAB, max_length=64, dropout=0.0)
layers = [
    dict(causal=True, positions="rotary"),
    dict(key_heads=1, filter="depthwise", filter_on="projected", short_convolution="depthwise"),
    dict(psd="cone", projections="per_level", short_convolution="dense", convolution_on="qkv"),
    dict(psd="cone", positions="rotary", filter="mean"),
    dict(psd="tied", levels=1, causal=True),
]


def model_of(**changes):
    return LanguageModel(ModelConfig(**{**small, **changes}))


def layer_of(**options):
    """In float64, and away from the start."""
    layer = HierarchicalAttention(8, 2, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return layer


def tokens_of(batch, length):
    return torch.randint(VOCAB, (batch, length))


def rows_of(batch=2, length=5):
    return torch.randn(batch, length, 8, dtype=torch.float64)


def gradients(model, *arguments):
    model.zero_grad()
    model(*arguments).square().sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# Gradients


@pytest.mark.parametrize("options", layers, ids=names)
def test_gradients_of_attention_are_those_of_finite_differences(options):
    layer, lengths = layer_of(**options), torch.tensor([5, 2])
    parameters = {name: parameter.detach().requires_grad_() for name, parameter in layer.named_parameters()}

    def forward(x, *values):
        return functional_call(layer, dict(zip(parameters, values)), (x, lengths))

    assert torch.autograd.gradcheck(forward, (rows_of().requires_grad_(), *parameters.values()), fast_mode=True)


@pytest.mark.parametrize("layer", [
    Downsample(8), Downsample(8, "depthwise", 3), Downsample(8, "mean", 4), ShortConvolution(8), ShortConvolution(8, "dense", 3),
], ids=str)
def test_gradients_of_filters_are_those_of_finite_differences(layer):
    layer = layer.double()
    assert torch.autograd.gradcheck(lambda x, *weight: functional_call(layer, dict(zip(["weight"], weight)), (x,)),
                                    (rows_of().requires_grad_(), *(p.detach().requires_grad_() for p in layer.parameters())))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_in_a_checkpoint_has_the_same_gradients(reentrant):
    layer, x = layer_of(**layers[0]), rows_of().requires_grad_()
    expected = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    checkpoint(layer, x, use_reentrant=reentrant).square().sum().backward()
    for mine, theirs in zip([x, *layer.parameters()], expected):
        assert torch.equal(mine.grad, theirs)


def test_checkpoints_of_a_model_change_no_bit():
    model, tokens = model_of(blocks=2, dropout=0.3), tokens_of(2, 9)
    results = []
    for model.checkpoints in (False, True):
        torch.manual_seed(3)
        results.append(gradients(model, tokens))
    for name, gradient in results[0].items():
        assert torch.equal(gradient, results[1][name]), name


def test_autocast():
    model, tokens = model_of(short_convolution="dense", kernel_size=3), tokens_of(2, 20)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    full, full_gradients = model(tokens), gradients(model, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(tokens)
        assert model.blocks[0].attention.weights().dtype == torch.float32
        low_gradients = gradients(model, tokens)
    assert low.dtype == torch.bfloat16
    assert (low - full).norm() < 0.02 * full.norm()
    for name, gradient in full_gradients.items():
        assert low_gradients[name].dtype == torch.float32
        assert (low_gradients[name] - gradient).norm() < 0.1 * gradient.norm() + 1e-6, name


# torch.compile and torch.export


def test_a_language_model_compiles_once():
    model = model_of(filter="depthwise", short_convolution="depthwise")
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for number, (batch, length) in enumerate([(2, 13), (3, 24), (4, 9), (2, 64), (7, 5)]):
        tokens = tokens_of(batch, length)
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            torch.testing.assert_close(compiled(tokens), model(tokens))
            torch.testing.assert_close(list(gradients(compiled, tokens).values()), list(gradients(model, tokens).values()))


def test_a_layer_with_a_padding_mask_compiles():
    layer = HierarchicalAttention(8, 2, psd="cone")
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for number, (batch, length) in enumerate([(2, 13), (3, 24)]):
        x, mask = torch.randn(batch, length, 8), torch.arange(length) >= torch.randint(1, length, (batch, 1))
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            torch.testing.assert_close(compiled(x, key_padding_mask=mask), layer(x, key_padding_mask=mask))
    mask[1] = torch.arange(24) == 0
    with pytest.raises(RuntimeError, match="key_padding_mask must be False for a sequence's tokens and True for padding after them"):
        compiled(x, key_padding_mask=mask)


@pytest.mark.parametrize("sizes", [{0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}, {0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", min=5, max=64)}],
                         ids=["auto", "named"])
def test_a_model_is_exported_for_all_lengths_from_five_on(sizes):
    """Shorter sequences have one row at the coarsest of three levels, for which PyTorch makes an exported program of its own."""
    model = model_of().eval()
    program = torch.export.export(model, (tokens_of(2, 9),), dynamic_shapes=(sizes,))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program.module(), torch.export.load(file).module()):
        for shape in ((1, 5), (3, 64), (2, 17)):
            tokens = tokens_of(*shape)
            torch.testing.assert_close(exported(tokens), model(tokens))


# torch.func


@pytest.mark.parametrize("options", layers, ids=names)
def test_func_grad_is_backward(options):
    layer, x = layer_of(**options), rows_of()
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    result = torch.func.grad(lambda values: functional_call(layer, values, (x, torch.tensor([5, 3]))).square().sum())(parameters)
    for name, gradient in gradients(layer, x, torch.tensor([5, 3])).items():
        torch.testing.assert_close(result[name], gradient)


def test_jacobians():
    layer, x = layer_of(**layers[0]), rows_of()
    torch.testing.assert_close(torch.func.jacrev(layer)(x), torch.autograd.functional.jacobian(layer, x))


def test_gradients_of_each_sample():
    model, tokens = model_of().double(), tokens_of(3, 7)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    of_one = torch.func.grad(lambda values, row: functional_call(model, values, (row[None],)).square().sum())
    result = torch.vmap(of_one, (None, 0))(parameters, tokens)
    for b in range(3):
        for name, gradient in gradients(model, tokens[b : b + 1]).items():
            torch.testing.assert_close(result[name][b], gradient)


def test_vmap_over_inputs_lengths_and_masks():
    layer, x, lengths = layer_of(**layers[1]), torch.randn(3, 2, 5, 8, dtype=torch.float64), torch.tensor([[4, 3], [5, 1], [0, 2]])
    torch.testing.assert_close(torch.vmap(layer)(x), torch.stack([layer(y) for y in x]))
    expected = torch.stack([layer(*one) for one in zip(x, lengths)])
    torch.testing.assert_close(torch.vmap(layer)(x, lengths), expected)
    mask = torch.arange(5) >= lengths[:, :, None]
    torch.testing.assert_close(torch.vmap(lambda y, m: layer(y, key_padding_mask=m))(x, mask), expected)
    mask[0, 0] = torch.arange(5) == 0
    with pytest.raises(ValueError, match="key_padding_mask"):
        torch.vmap(lambda y, m: layer(y, key_padding_mask=m))(x, mask)


def test_an_ensemble_is_a_vmap_over_parameters():
    ensemble, x = [layer_of(**layers[0]) for _ in range(3)], rows_of()
    parameters, buffers = stack_module_state(ensemble)
    result = torch.vmap(lambda p, b: functional_call(ensemble[0], (p, b), (x,)))(parameters, buffers)
    torch.testing.assert_close(result, torch.stack([layer(x) for layer in ensemble]))


def test_forward_mode_and_second_derivatives_are_refused():
    layer, x = layer_of(**layers[0]), rows_of()
    for transform in (lambda: torch.func.jvp(layer, (x,), (x,)), lambda: torch.func.jacfwd(layer)(x), lambda: torch.func.hessian(layer)(x)):
        with pytest.raises(NotImplementedError, match="hkt's operators have no forward-mode derivative; use torch.func.grad, vjp or jacrev"):
            transform()
    with pytest.raises(NotImplementedError, match="the second derivative is not implemented"):
        torch.func.jacrev(torch.func.grad(lambda y: layer(y).square().sum()))(x)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="jvp is not implemented"):
        layer(forward_ad.make_dual(x, x))


# Copies and starts


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), saved_and_loaded],
                         ids=["deepcopy", "pickle", "torch.save"])
def test_copies_are_independent_and_give_the_same(copied):
    model, tokens = model_of(psd="cone", filter="mean", short_convolution="depthwise"), tokens_of(2, 9)
    expected = model(tokens).detach()  # and the tables of positions are there
    twin = copied(model)
    assert torch.equal(twin(tokens), expected) and twin.config == model.config
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(model(tokens), expected)


@pytest.mark.parametrize("changes", [dict(), dict(kind="classifier", psd="cone", projections="per_level", positions="learned"),
                                     dict(filter="mean", tied=True, weights=1, short_convolution="dense")], ids=names)
def test_state_dict_round_trip(changes):
    config = ModelConfig(**{**small, **changes})
    model, other = create_model(config).eval(), create_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    other.load_state_dict(model.state_dict())
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
    assert torch.equal(other(tokens_of_fixed()), model(tokens_of_fixed()))
    with pytest.raises(RuntimeError, match="alpha"):
        create_model(ModelConfig(**{**small, **changes, "levels": 2, "weights": "learned"})).load_state_dict(model.state_dict())


def tokens_of_fixed():
    return torch.arange(18).view(2, 9) % VOCAB


@pytest.mark.parametrize("changes", [dict(positions="learned", short_convolution="dense"),
                                     dict(kind="classifier", psd="cone", projections="per_level", filter="depthwise", positions="learned")], ids=names)
def test_a_model_made_without_memory_starts_as_others_do(changes):
    config = ModelConfig(**{**small, **changes, "width": 64})
    model = create_model(config, device="meta")
    assert model(torch.empty(2, 9, dtype=torch.int64, device="meta")).is_meta
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    model.reset_parameters()
    for (name, mine), other in zip(model.named_parameters(), create_model(config).parameters(), strict=True):
        assert mine.isfinite().all(), name
        assert_alike(mine, other)


def test_inference_before_training():
    """Tables of positions that inference_mode made can be saved for the backward pass."""
    for changes in (dict(width=22, heads=1), dict(positions="sinusoidal", width=26)):
        model = model_of(**changes)
        with torch.inference_mode():
            expected = model(tokens_of_fixed())
        assert torch.equal(model(tokens_of_fixed()), expected)
        assert all(gradient.isfinite().all() for gradient in gradients(model, tokens_of_fixed()).values())


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradients(model_of(), tokens_of(2, 9))


# Padding


def test_a_padding_mask_is_the_same_as_lengths():
    layer, x, lengths = layer_of(**layers[1]), rows_of(4, 6), torch.tensor([6, 4, 1, 0])
    mask = torch.arange(6) >= lengths[:, None]
    assert torch.equal(lengths_of(mask), lengths)
    out = layer(x, key_padding_mask=mask)
    assert torch.equal(out, layer(x, lengths))
    assert torch.equal(layer(x, key_padding_mask=torch.zeros_like(mask)), layer(x))
    assert not out[mask].any()
    torch.testing.assert_close(layer(x.masked_fill(mask[:, :, None], 1e6), lengths), out)
    torch.testing.assert_close(out[1, :4], layer(x[1:2, :4])[0])


@pytest.mark.parametrize("mask, message", [
    ([[True, False, False], [False] * 3], "padding on the left or between tokens moves them on the coarse grid"),
    ([[False] * 3, [False, True, False]], "padding on the left or between tokens moves them on the coarse grid"),
    ([[False] * 4, [False] * 4], r"key_padding_mask has shape \[2, 4\]; x needs \[2, 3\]"),
    ([[False] * 3], r"key_padding_mask has shape \[1, 3\]; x needs \[2, 3\]"),
    ([False] * 3, r"key_padding_mask has shape \[3\]; x needs \[2, 3\]"),
    ([[0.0] * 3, [0.0] * 3], r"key_padding_mask is torch.float32 \[2, 3\]; it must be bool"),
])
def test_other_masks_are_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        layer_of()(rows_of(2, 3), key_padding_mask=torch.tensor(mask))


@pytest.mark.parametrize("call, message", [
    (lambda: layer_of()(rows_of(), torch.tensor([5, 5]), key_padding_mask=torch.zeros(2, 5, dtype=torch.bool)), "give one of them"),
    (lambda: layer_of()(rows_of()[0]), r"x has shape \[5, 8\]; HierarchicalAttention needs \[batch, length, 8\]"),
    (lambda: HierarchicalAttention(8, 3), "^width is 8; it must be a multiple of heads, 3"),
    (lambda: HierarchicalAttention(8, 2, levels=9), "^levels is 9; it must be an integer from 1 to 8"),
    (lambda: HierarchicalAttention(8, 2, positions="learned"), "positions is \"learned\"; for attention it must be none or rotary"),
    (lambda: HierarchicalAttention(8, 2, filter="denes"), 'nearest: "dense"'),
    (lambda: Downsample(0), "width is 0; Downsample needs at least 1"),
    (lambda: Downsample(8, "box"), 'filter is "box"; it must be dense, depthwise or mean'),
    (lambda: ShortConvolution(8, taps=1), "taps is 1; ShortConvolution needs at least 2"),
    (lambda: ShortConvolution(8, "none"), 'kind is "none"; it must be depthwise or dense'),
    (lambda: model_of()(tokens_of(2, 65)), r"tokens has length 65; this LanguageModel takes at most 64"),
    (lambda: model_of()(tokens_of(2, 9).int()), r"tokens is torch.int32 \[2, 9\]; LanguageModel needs int64"),
    (lambda: model_of()(torch.full((1, 1), VOCAB)), "tokens contains 11; the model takes 0 to 10"),
    (lambda: model_of()(tokens_of(2, 9), torch.tensor([9, 10])), "lengths contains 10; it must be from 0 to the length of tokens, 9"),
    (lambda: model_of()(tokens_of(2, 9), torch.tensor([9])), r"lengths has shape \[1\]; LanguageModel needs \[2\]"),
    (lambda: model_of()(tokens_of(2, 9), torch.tensor([9.0, 3.0])), "lengths is torch.float32 on cpu"),
    (lambda: Classifier(ModelConfig(**small)), "model.kind is language; Classifier needs classifier"),
    (lambda: LanguageModel(ModelConfig()), "model.kind is classifier; LanguageModel needs language"),
])
def test_wrong_use_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as refusal:
        call()
    text = str(refusal.value)
    assert text.endswith(".") and "\n" not in text
