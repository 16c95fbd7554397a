# SPDX-License-Identifier: Apache-2.0
"""The modules of hkt.nn have the weights and numbers of the C++ modules, and run directories go both ways."""
import dataclasses
import json
import math
import shutil
import subprocess
import typing

import plain_model
import pytest
import torch
import torch.nn.functional as F
from program import TINY, run, train_arguments
from safetensors.torch import load_file
from test_models import models as shipped

import hkt
from hkt.config import ModelConfig
from hkt.nn import Classifier, LanguageModel

small = dict(heads=2, width=12, feedforward=20, classes=5, max_length=32)
classifiers = [
    dict(),
    dict(levels=1, pooling="last"),
    dict(levels=5, mask="causal", key_heads=1),
    dict(levels=4, heads=6, key_heads=2, positions="rotary", mask="causal"),
    dict(positions="learned", pooling="last", filter="depthwise", kernel_size=3),
    dict(positions="none", filter="mean", kernel_size=4, weights="uniform"),
    dict(filter="dense", kernel_size=5, weights=1, biases=False),
    dict(filter="depthwise", filter_on="projected", key_heads=1, positions="rotary"),
    dict(filter="mean", filter_on="projected", mask="causal", kernel_size=1),
    dict(short_convolution="depthwise", positions="rotary"),
    dict(short_convolution="depthwise", convolution_on="qkv", convolution_taps=2, mask="causal"),
    dict(short_convolution="dense", convolution_taps=3, key_heads=1),
    dict(short_convolution="dense", convolution_on="qkv", filter="depthwise", filter_on="projected"),
    dict(projections="per_level", pooling="last", key_heads=1),
    dict(psd="tied"),
    dict(psd="tied", projections="per_level", positions="rotary"),
    dict(psd="cone", short_convolution="depthwise"),
    dict(psd="cone", projections="per_level", mask="causal"),
    dict(psd="cone", positions="rotary"),
    dict(psd="cone", projections="per_level", positions="rotary", pooling="last", weights=0),
    dict(heads=1, width=7),
]
languages = [
    dict(),
    dict(levels=1, positions="sinusoidal"),
    dict(tied=True, levels=5, key_heads=1),
    dict(tied=True, biases=True, positions="learned", psd="cone", projections="per_level"),
    dict(filter_on="projected", short_convolution="depthwise"),
    dict(filter="dense", kernel_size=2, short_convolution="dense", convolution_on="qkv"),
    dict(filter="mean", weights="uniform", positions="none", psd="tied"),
]
texts = ["a", "It is as it was.", "Forty-two letters, spaces and marks: longer than the model reads", "é"]


def names(model):
    return " ".join(f"{key}={value}" for key, value in model.items()) or "default"


def test_the_table_has_every_option():
    """Each value that an option can have, and of numbers two; an option that is new fails here."""
    seen = {field.name: set() for field in dataclasses.fields(ModelConfig)}
    for kind, table in (("classifier", classifiers), ("language", languages)):
        for model in table:
            for key, value in {"kind": kind, **small, **model}.items():
                seen[key].add(value)
    fields = {field.name: field for field in dataclasses.fields(ModelConfig)}
    for name, hint in typing.get_type_hints(ModelConfig).items():
        choices = [value for one in (hint, *typing.get_args(hint)) for value in typing.get_args(one)]
        wanted = {value for value in choices if isinstance(value, str)} or ({True, False} if hint is bool else set())
        assert wanted <= seen[name] | {fields[name].default}, name
    numbers = ("levels", "heads", "key_heads", "width", "kernel_size", "convolution_taps")
    assert all(len(seen[name]) > 1 for name in numbers)


@pytest.mark.parametrize("model", classifiers, ids=names)
def test_a_classifier_has_the_numbers_of_the_program(model, build_folder, tmp_path):
    """From C++ to Python by parameter names, and back by hkt.save."""
    config = ModelConfig(**{**small, **model})
    weights, case = tmp_path / "weights.safetensors", tmp_path / "case.safetensors"
    stored = json.dumps({"format": 1, "model": config.to_dict()})
    subprocess.run([build_folder / "tests" / "export_classifier", stored, weights, case, "float32"], check=True)
    parameters, case = load_file(weights), load_file(case)

    mine = Classifier(config)
    assert {name: p.shape for name, p in mine.state_dict().items()} == {name: p.shape for name, p in parameters.items()}
    mine.load_state_dict(parameters)
    mine.eval()
    with torch.no_grad():
        for logits, lengths in ((case["logits"], case["lengths"]), (case["logits_without_lengths"], None)):
            torch.testing.assert_close(mine(case["tokens"], lengths), logits, rtol=1e-5, atol=1e-5)
        precise = plain_model.classify(config.to_dict(), {name: p.double() for name, p in parameters.items()}, case["tokens"], case["lengths"])
        torch.testing.assert_close(mine.double()(case["tokens"], case["lengths"]), precise, rtol=1e-10, atol=1e-10)

    labels = [f"class {i}" for i in range(config.classes)]
    hkt.save(mine.float(), tmp_path / "run", labels=labels)
    process = run("predict", tmp_path / "run", "--json", "--device", "cpu", input="\n".join(texts) + "\n")
    assert process.returncode == 0, process.stderr
    for line, text in zip(process.stdout.splitlines(), texts, strict=True):
        answer, tokens = json.loads(line), torch.tensor([list(text.encode()[: config.max_length])])
        probabilities = mine(tokens).softmax(1)[0]
        assert answer["label"] == labels[probabilities.argmax()]
        assert answer["probability"] == pytest.approx(probabilities.max().item(), abs=1e-5)


# Language models: the program trains one; others take its place in the run directory.

LENGTH = 48


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    file = tmp_path_factory.mktemp("book") / "book.txt"
    file.write_text("".join(f"{a} plus {b} is {a + b}, and é\n" for a in range(12) for b in range(12)))
    return file


def train_language(folder, book, *changes):
    settings = [change for change in TINY if change.startswith("model.")] + [f"model.max_length={LENGTH}", f"data.train={book}"]
    steps = ["train.batch=4", "train.epochs=1", "train.epoch_steps=8", "data.validation=0.1"]
    process = run("train", "lm", "--threads", 1, "--device", "cpu", "--out", folder, "--set", *settings, *steps, *changes)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, book):
    return train_language(tmp_path_factory.mktemp("runs") / "trained", book)


def score_of(model, text):
    """Bits per byte as the program scores: every byte once, after at least half a window."""
    stream, total, scored = torch.tensor(list(text)), 0.0, 0
    for begin in range(0, len(stream) - 1, LENGTH // 2):
        inputs, targets = stream[begin : begin + LENGTH], stream[begin + 1 : begin + LENGTH + 1]
        with torch.no_grad():
            losses = F.cross_entropy(model(inputs[None, : len(targets)])[0], targets, reduction="none")
        total += losses[max(scored - begin, 0) :].double().sum().item()
        scored = begin + len(targets)
        if scored == len(stream) - 1:
            break
    return total / (len(stream) - 1) / math.log(2)


def assert_program_agrees(model, folder, book):
    whole = book.read_bytes() + b"\0"
    share = int(0.1 * len(whole))
    score = json.loads(run("eval", folder, "--split", "validation", "--json", "--device", "cpu").stdout)
    assert score["bits_per_byte"] == pytest.approx(score_of(model, whole[-2 * share : -share]), abs=1e-5)


def test_a_run_of_the_program_loads(trained, book):
    model = hkt.load(trained)
    assert type(model) is LanguageModel and not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert_program_agrees(model, trained, book)


@pytest.mark.parametrize("changes", languages, ids=names)
def test_the_program_reads_a_language_model(changes, trained, book, tmp_path):
    old = hkt.load(trained)
    model = LanguageModel(dataclasses.replace(old.config, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.origin = old.origin  # which names the data
    shutil.copytree(trained, tmp_path / "run")
    hkt.save(model, tmp_path / "run")
    assert_program_agrees(model, tmp_path / "run", book)


@pytest.mark.parametrize("name", ["imdb-hkt", "imdb-standard"])
def test_shipped_classifiers_answer_as_the_program_does(name):
    model, reviews = hkt.load(shipped / name), (shipped / "reviews.txt").read_text()
    for line, text in zip(run("predict", shipped / name, "--json", "--device", "cpu", input=reviews).stdout.splitlines(), reviews.splitlines(),
                          strict=True):
        answer, probabilities = json.loads(line), model(torch.tensor([list(text.encode()[: model.config.max_length])])).softmax(1)[0]
        assert answer["label"] == model.labels[probabilities.argmax()]
        assert answer["probability"] == pytest.approx(probabilities.max().item(), abs=1e-5)


def test_the_shipped_language_model_writes_as_the_program_does():
    model, prompt = hkt.load(shipped / "enwik8-hkt"), "The history of "
    process = run("generate", shipped / "enwik8-hkt", "--prompt", prompt, "--tokens", 80, "--temperature", 0, "--json", "--device", "cpu")
    tokens = model.generate(torch.tensor([list(prompt.encode())]), 80)
    assert bytes(tokens[0].tolist()).decode() == prompt + json.loads(process.stdout)["text"]


def test_beyond_the_context_it_goes_on_as_the_program_does(trained):
    """From the last half of a full window, several times."""
    process = run("generate", trained, "--prompt", "3 plus ", "--tokens", 4 * LENGTH, "--temperature", 0, "--json", "--device", "cpu")
    answer = json.loads(process.stdout)
    assert answer["tokens"] == 4 * LENGTH
    tokens = hkt.load(trained).generate(torch.tensor([list(b"3 plus ")]), 4 * LENGTH)
    assert bytes(tokens[0].tolist()) == b"3 plus " + answer["text"].encode()


# How models start


def assert_alike(mine, other):
    """Drawn from the same distribution, as far as mean and deviation say; what is constant is equal."""
    mine, other = mine.double(), other.double()
    if other.numel() < 2 or other.std() < 1e-20:
        torch.testing.assert_close(mine, other)
        return
    deviation, roots = other.std(), math.sqrt(other.numel())
    assert abs(mine.mean() - other.mean()) < 7 * deviation / roots
    assert abs(mine.std() / deviation - 1) < 7 / roots


@pytest.fixture(scope="module")
def starts(tmp_path_factory, book):
    """Of the C++ modules: a step at a learning rate of nearly nothing leaves them where they started."""
    folder = tmp_path_factory.mktemp("starts")
    common = ["train.learning_rate=1e-30", "model.levels=3", "model.width=32", "model.short_convolution=dense", "model.filter=dense",
              "model.kernel_size=2", "model.positions=learned", "model.blocks=2"]
    language = train_language(folder / "language", book, *common, "train.epoch_steps=1", "model.biases=true")
    process = run(*train_arguments(folder / "classifier", *common, "train.epochs=1", "data.train_samples=32", "model.short_convolution=depthwise",
                                   "model.psd=cone", "model.projections=per_level"), data=folder)
    assert process.returncode == 0, process.stderr
    return {"language": language, "classifier": folder / "classifier"}


@pytest.mark.parametrize("kind", ["language", "classifier"])
def test_modules_start_as_in_cpp(kind, starts):
    theirs = hkt.load(starts[kind])
    mine = hkt.nn.create_model(theirs.config)
    for (name, parameter), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        start = torch.eye(parameter.size(-1)) / parameter.size(0) if "filters" in name or (kind == "language" and "convolution" in name) else 0
        with torch.no_grad():
            assert_alike(parameter - start, other - start)


def test_what_a_start_means():
    """Uniform level weights, filters near the mean, GPT-2's deviations and smaller ones for what writes to the residual stream."""
    config = ModelConfig(kind="language", mask="causal", width=64, blocks=8, levels=4, kernel_size=3, short_convolution="depthwise")
    model = LanguageModel(config)
    for block in model.blocks:
        attention = block.attention
        torch.testing.assert_close(attention.weights(), torch.full((4, 4), 0.25))
        near = attention.filters["2"].weight - torch.eye(64) / 3
        assert near.std().item() == pytest.approx(0.02, rel=0.1)
        x = torch.randn(1, 9, 64)
        torch.testing.assert_close(attention.convolution(x)[:, 1:], x[:, 1:] + x[:, :-1])
        for layer, deviation in ((attention.query_key, 0.02), (block.expand, 0.02), (attention.output, 0.005), (block.contract, 0.005)):
            assert layer.weight.std().item() == pytest.approx(deviation, rel=0.1)
        assert not block.expand.bias.any()
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.1)
    depthwise = hkt.nn.Downsample(8, "depthwise", 4)
    torch.testing.assert_close(depthwise.weight, torch.full((4, 8), 0.25))
    cone = hkt.nn.HierarchicalAttention(8, 2, psd="cone")
    torch.testing.assert_close(cone.cone(0), torch.eye(4).expand(2, 4, 4))
