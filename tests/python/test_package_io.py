# SPDX-License-Identifier: Apache-2.0
"""hkt.load and hkt.save: what is kept, exported models, and what is said of folders and files that are not models."""
import json
import os
import subprocess
import sys

import pytest
import torch
from program import run
from safetensors import safe_open
from safetensors.torch import save_file
from test_models import models as shipped

import hkt
from hkt.config import ModelConfig
from hkt.nn import Classifier, LanguageModel

language = ModelConfig(kind="language", mask="causal", width=16, heads=2, blocks=1, feedforward=16, vocab=256)
classifier = ModelConfig(width=16, heads=2, blocks=1, feedforward=16, classes=2)


def metadata_of(folder):
    with safe_open(folder / "model.safetensors", "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}


def rewritten(folder, tensors=None, **metadata):
    """The folder with another file, which has no checksum."""
    old, old_tensors = metadata_of(folder)
    old.pop("checksum", None)
    save_file(tensors or old_tensors, folder / "model.safetensors", {**old, **metadata})
    return folder


@pytest.fixture
def saved(tmp_path):
    hkt.save(Classifier(classifier), tmp_path / "saved", labels=["no", "yes"])
    return tmp_path / "saved"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("config", [language, classifier], ids=["language", "classifier"])
def test_saved_and_loaded_a_model_has_the_same_bits(config, dtype, tmp_path):
    model = hkt.nn.create_model(config).to(dtype)
    hkt.save(model, tmp_path)
    again = hkt.load(tmp_path, dtype=dtype)
    assert type(again) is type(model) and again.config == config and not again.training
    for (name, mine), theirs in zip(again.named_parameters(), model.parameters(), strict=True):
        assert mine.dtype == dtype and torch.equal(mine, theirs), name
    assert all(parameter.dtype == torch.float32 for parameter in hkt.load(tmp_path).parameters())


def test_a_loaded_model_trains():
    model = hkt.load(shipped / "imdb-hkt").train()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(torch.tensor([list(b"good film")])), torch.tensor([0])).backward()
    optimizer.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters()) if new.grad.any())


def test_a_copy_keeps_labels_training_and_data(tmp_path):
    """So that the program, which reads the copy, says of it what it says of the original."""
    hkt.save(hkt.load(shipped / "imdb-hkt"), tmp_path / "copy")
    mine, theirs = (metadata_of(folder) for folder in (tmp_path / "copy", shipped / "imdb-hkt"))
    assert mine[1].keys() == theirs[1].keys() and all(torch.equal(mine[1][name].float(), theirs[1][name].float()) for name in mine[1])
    config, original = (json.loads(metadata["config"]) for metadata, _ in (mine, theirs))
    assert config["model"].items() >= original.pop("model").items() and config.items() >= original.items()
    assert json.loads(mine[0]["labels"]) == json.loads(theirs[0]["labels"])
    assert mine[0]["data"] == theirs[0]["data"]
    assert json.loads((tmp_path / "copy" / "config.json").read_text()) == json.loads(mine[0]["config"])
    reviews = (shipped / "reviews.txt").read_text()
    assert run("predict", tmp_path / "copy", input=reviews).stdout == run("predict", shipped / "imdb-hkt", input=reviews).stdout


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_exported_models_load(precision, tmp_path):
    assert run("export", shipped / "enwik8-hkt", "--out", tmp_path / "out", "--precision", precision).returncode == 0
    model, original, tokens = hkt.load(tmp_path / "out"), hkt.load(shipped / "enwik8-hkt"), torch.tensor([list(b"The history of")])
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    for mine, theirs in zip(model.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0 if precision == "float32" else 2**-8, atol=0)
    assert hkt.load(tmp_path / "out", dtype=torch.bfloat16)(tokens).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_program_reads_other_precisions(dtype, tmp_path):
    model = hkt.load(shipped / "imdb-hkt")
    hkt.save(model.to(dtype), tmp_path / "copy")
    reviews = (shipped / "reviews.txt").read_text()
    process = run("predict", tmp_path / "copy", "--json", "--device", "cpu", input=reviews)
    assert process.returncode == 0, process.stderr
    for line, text in zip(process.stdout.splitlines(), reviews.splitlines(), strict=True):
        probability = model.float()(torch.tensor([list(text.encode()[: model.config.max_length])])).softmax(1).max().item()
        assert json.loads(line)["probability"] == pytest.approx(probability, abs=1e-5)


def test_a_model_in_the_folder_is_replaced_and_nothing_else(saved):
    (saved / "notes.txt").write_text("mine")
    hkt.save(LanguageModel(language), saved)
    assert type(hkt.load(saved)) is LanguageModel
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors", "notes.txt"]


def test_what_cannot_be_written_leaves_the_old_model(saved):
    """No file may become larger than so many bytes."""
    before = (saved / "model.safetensors").read_bytes()
    code = """
import resource, signal, sys, hkt
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = hkt.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    hkt.save(model, sys.argv[1])
except OSError as error:
    print(error.errno)
"""
    process = subprocess.run([sys.executable, "-c", code, saved], capture_output=True, text=True, timeout=100)
    assert process.stdout.strip().isdigit(), process.stderr
    assert (saved / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in saved.iterdir()) == ["config.json", "model.safetensors"]


def test_files_have_the_mode_that_umask_says(tmp_path):
    old = os.umask(0o027)
    try:
        hkt.save(LanguageModel(language), tmp_path)
    finally:
        os.umask(old)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o640


# What is refused


def damaged(folder, change):
    path = folder / "model.safetensors"
    path.write_bytes(change(path.read_bytes()))
    return folder


def config_of(folder, **changes):
    config = json.loads(metadata_of(folder)[0]["config"])
    return json.dumps({**config, **changes})


def without(tensors, name):
    return {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize("change, message", [
    (lambda folder: folder / "none", "none is not a folder; a run directory"),
    (lambda folder: folder.parent, "has no model.safetensors: it is not a run directory, or its run has not finished an epoch"),
    (lambda folder: damaged(folder, lambda content: b""), "is not safetensors, or is truncated"),
    (lambda folder: damaged(folder, lambda content: content[:100]), "is not safetensors, or is truncated"),
    (lambda folder: damaged(folder, lambda content: content[:-1]), "its checksum is [0-9a-f]{8} and should be"),
    (lambda folder: damaged(folder, lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]), "is damaged: its checksum"),
    (lambda folder: damaged(folder, lambda content: content.replace(b"yes", b"no?")), "is damaged: its checksum"),
    (lambda folder: damaged(folder, lambda content: b"\x02\0\0\0\0\0\0\0{}"), 'was not written by hkt: its metadata has no "config"'),
    (lambda folder: damaged(folder, lambda content: b"\x02\0\0\0\0\0\0\0{]"), "is not valid safetensors"),
    (lambda folder: rewritten(folder, config="{"), 'its "config" is not JSON'),
    (lambda folder: rewritten(folder, config=config_of(folder, format=2)), "has no config of format 1; it was written by another version"),
    (lambda folder: rewritten(folder, config=config_of(folder, model={"width": 15})), "has an invalid config: model.width is 15"),
    (lambda folder: rewritten(folder, config=config_of(folder, model={"widht": 16})), 'unknown key "widht"; the nearest known one is "width"'),
    (lambda folder: rewritten(folder, config=config_of(folder, model={"blocks": 1000})), "has fewer tensors than its config has blocks"),
    (lambda folder: rewritten(folder, without(metadata_of(folder)[1], "norm.bias")), 'lacks the tensor "norm.bias"'),
    (lambda folder: rewritten(folder, {**metadata_of(folder)[1], "more": torch.zeros(1)}), 'has the tensor "more", which its config does not define'),
    (lambda folder: rewritten(folder, {**metadata_of(folder)[1], "norm.bias": torch.zeros(3)}), r'has "norm.bias" as torch.float32 \[3\]'),
    (lambda folder: rewritten(folder, {**metadata_of(folder)[1], "norm.bias": torch.zeros(16).int()}), "has \"norm.bias\" as torch.int32"),
    (lambda folder: rewritten(folder, labels='["no"]'), "has 1 labels, but its model has 2 classes"),
    (lambda folder: rewritten(folder, labels="3"), "has 0 labels"),
    (lambda folder: rewritten(folder, labels='["a", "a"]'), 'has the label "a" twice'),
])
def test_a_folder_that_holds_no_model_is_one_sentence(change, message, saved):
    folder = change(saved)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as refusal:
        hkt.load(folder)
    text = str(refusal.value)
    assert str(folder) in text and "\n" not in text


class Wrapped(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        setattr(self, name, LanguageModel(language))


@pytest.mark.parametrize("model, options, message", [
    (torch.nn.Linear(2, 2), {}, "model is a Linear; save takes a Classifier or a LanguageModel\\.$"),
    (Wrapped("module"), {}, r"model is a Wrapped; save takes a Classifier or a LanguageModel \(pass its .module\)"),
    (torch.compile(LanguageModel(language)), {}, r"\(pass its ._orig_mod\)"),
    (Classifier(classifier), dict(labels=["a"]), "labels has 1 labels, but its model has 2 classes"),
    (Classifier(classifier), dict(labels=["a", "a"]), 'labels has the label "a" twice'),
    (Classifier(classifier), dict(labels=["a", ""]), "not a string of 1 to 256 bytes"),
    (LanguageModel(language), dict(labels=["a"]), "labels are the names of classes; a LanguageModel has none"),
])
def test_what_cannot_be_saved_is_one_sentence(model, options, message, tmp_path):
    with pytest.raises((TypeError, ValueError), match=message):
        hkt.save(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_file_that_cannot_be_read_is_one_sentence(saved):
    (saved / "model.safetensors").unlink()
    (saved / "model.safetensors").mkdir()
    with pytest.raises(ValueError, match="model.safetensors cannot be read: Is a directory"):
        hkt.load(saved)
