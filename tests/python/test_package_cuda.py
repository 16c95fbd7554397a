# SPDX-License-Identifier: Apache-2.0
"""The modules, caches and Hugging Face models of the package on a GPU: the numbers of the CPU, and what only a GPU has."""
import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import hkt
from hkt.cache import DecodingState
from hkt.config import ModelConfig
from hkt.nn import HierarchicalAttention, LanguageModel
from test_package_models import names

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
device = "cuda"
root = Path(__file__).resolve().parents[2]
layers = [
    dict(causal=True, positions="rotary"),
    dict(key_heads=1, filter="depthwise", filter_on="projected", short_convolution="depthwise", levels=5, causal=True),
    dict(psd="cone", projections="per_level", short_convolution="dense", convolution_on="qkv"),
    dict(weights="uniform", filter="mean", levels=4),
]


def layer_of(**options):
    return HierarchicalAttention(128, 2, **options)  # heads of width 64, which the fast kernels take


def model_of(**changes):
    config = dict(kind="language", mask="causal", positions="rotary", filter="depthwise", kernel_size=4, levels=3, width=128, heads=2, blocks=2,
                  feedforward=128, max_length=512, dropout=0.0)
    return LanguageModel(ModelConfig(**{**config, **changes})).eval()


def close(found, expected, tolerance=2e-4):
    torch.testing.assert_close(found.cpu().float(), expected.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", layers, ids=names)
def test_outputs_and_gradients_are_those_of_the_cpu(options):
    layer, x, lengths = layer_of(**options), torch.randn(3, 77, 128), torch.tensor([77, 1, 40])
    twin, y = copy.deepcopy(layer).to(device), x.to(device)
    for one, rows, count in ((layer, x, lengths), (twin, y, lengths.to(device))):
        one(rows.requires_grad_(), count).square().mean().backward()
    close(twin(y, lengths.to(device)), layer(x, lengths).detach())
    close(y.grad, x.grad)
    for (name, found), expected in zip(twin.named_parameters(), layer.parameters(), strict=True):
        scale = float(expected.grad.abs().max()) + 1e-12
        assert float((found.grad.cpu() - expected.grad).abs().max()) < 1e-3 * scale, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", layers, ids=names)
def test_low_precision(options, dtype):
    """As a module of that type, and under autocast: within 5 % of the largest output in float32."""
    layer, x = layer_of(**options), torch.randn(2, 300, 128)
    expected = layer(x).detach()
    scale = float(expected.abs().max())
    twin = copy.deepcopy(layer).to(device)
    with torch.autocast(device, dtype):
        found = twin(x.to(device))
    assert found.dtype == dtype
    assert float((found.cpu().float() - expected).detach().abs().max()) < 0.05 * scale
    found = twin.to(dtype)(x.to(device, dtype))
    assert float((found.cpu().float() - expected).detach().abs().max()) < 0.05 * scale


def test_padding_masks():
    layer, x = layer_of().to(device), torch.randn(2, 9, 128, device=device)
    mask = torch.arange(9, device=device) >= torch.tensor([[9], [4]], device=device)
    torch.testing.assert_close(layer(x, key_padding_mask=mask), layer(x, torch.tensor([9, 4], device=device)))
    with pytest.raises(ValueError, match="padding"):
        layer(x, key_padding_mask=mask.flip(1))


@pytest.mark.parametrize("changes", [dict(), dict(key_heads=1, levels=5), dict(filter_on="projected"), dict(short_convolution="depthwise")], ids=names)
def test_decoding_is_the_forward_pass(changes):
    model = model_of(**changes).to(device)
    tokens = torch.randint(256, (2, 90), device=device)
    state = DecodingState(model, 2, 90, take_back=4)
    with torch.no_grad():
        expected = model(tokens)
    pieces = [state.extend(tokens[:, :70])]  # by the kernels of long chunks
    pieces += [state.step(tokens[:, t])[:, None] for t in range(70, 80)]
    state.truncate([77, 77])
    pieces = [torch.cat(pieces, 1)[:, :77], state.extend(tokens[:, 77:])]
    torch.testing.assert_close(torch.cat(pieces, 1), expected, rtol=2e-4, atol=2e-4)


def test_left_padding_is_undone():
    model = model_of().to(device)
    tokens = torch.randint(256, (3, 20), device=device)
    together = model.generate(tokens, 30, lengths=[20, 3, 11])
    for row, length in enumerate([20, 3, 11]):
        alone = model.generate(tokens[row : row + 1, 20 - length :], 30)
        assert torch.equal(together[row, 20:], alone[0, length:])


def test_the_shipped_model_writes_what_it_writes_on_the_cpu():
    prompt = torch.tensor([list(b"The history of ")])
    expected = hkt.load(root / "models/enwik8-hkt").generate(prompt, 60)
    found = hkt.load(root / "models/enwik8-hkt", device=device).generate(prompt.to(device), 60)
    assert torch.equal(found.cpu(), expected)


def test_compiled():
    layer = layer_of(causal=True, positions="rotary").to(device)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for number, (batch, length) in enumerate([(2, 33), (3, 64)]):
        x = torch.randn(batch, length, 128, device=device)
        with torch.compiler.set_stance("fail_on_recompile" if number else "default"):
            torch.testing.assert_close(compiled(x), layer(x))


def test_a_layer_is_captured_as_a_graph():
    layer = layer_of(causal=True, positions="rotary").to(device, torch.bfloat16)
    x = torch.randn(2, 256, 128, device=device, dtype=torch.bfloat16, requires_grad=True)
    eager = copy.deepcopy(layer)
    graphed = torch.cuda.make_graphed_callables(layer, (x,))
    y = torch.randn_like(x)
    outputs = []
    for one in (graphed, eager):
        rows = y.clone().requires_grad_()
        out = one(rows)
        out.sum().backward()
        outputs.append((out.detach().clone(), rows.grad.clone()))
    torch.testing.assert_close(*outputs, rtol=0.02, atol=0.02)


def test_hugging_face():
    hf = pytest.importorskip("hkt.hf")
    config = hf.HktConfig(width=128, heads=2, mask="causal", positions="rotary", filter="depthwise", dropout=0.0, max_position_embeddings=128)
    model = hf.HktForCausalLM(config).eval()
    tokens, mask = torch.randint(256, (2, 12)), torch.ones(2, 12, dtype=torch.long)
    mask[0, :5] = 0
    expected = model.generate(tokens, attention_mask=mask, max_new_tokens=20, do_sample=False)
    found = copy.deepcopy(model).to(device).generate(tokens.to(device), attention_mask=mask.to(device), max_new_tokens=20, do_sample=False)
    assert torch.equal(found.cpu(), expected)


def test_ddp_over_nccl():
    """One process, which is what one GPU has."""
    process = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", str(root / "examples/ddp.py")],
                             capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert process.returncode == 0, process.stderr
    losses = [float(line.split()[2]) for line in process.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 10 and losses[-1] < losses[0]
