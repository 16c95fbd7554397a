# SPDX-License-Identifier: Apache-2.0
"""The models that are shipped: small, and of use without any data."""
import json
import os
import pathlib
import subprocess

import plain_model
import pytest
import torch
from program import command, refused, run
from safetensors import safe_open

root = pathlib.Path(__file__).resolve().parents[2]
models = root / "models"


@pytest.mark.parametrize("name", ["imdb-hkt", "imdb-standard"])
def test_they_are_small_and_explain_themselves_without_data(name, tmp_path):
    assert (models / name / "model.safetensors").stat().st_size < 2e6
    text = (models / "reviews.txt").read_text().splitlines()[0]
    process = run("explain", models / name, "--text", text, "--out", tmp_path / "page.html", data=tmp_path / "none")
    assert process.returncode == 0, process.stderr
    assert process.stdout.split("\t")[0] in ("neg", "pos")


def test_hkt_tells_the_two_reviews_apart():
    process = run("predict", models / "imdb-hkt", input=(models / "reviews.txt").read_text())
    assert process.returncode == 0, process.stderr
    assert [line.split("\t")[0] for line in process.stdout.splitlines()] == ["neg", "pos"]


@pytest.mark.parametrize("name", ["imdb-hkt", "imdb-standard"])
def test_they_are_what_their_readme_says(name):
    """Read with safetensors alone and computed in plain PyTorch: what models/README.md describes."""
    with safe_open(models / name / "model.safetensors", "pt") as file:
        parameters = {key: file.get_tensor(key).double() for key in file.keys()}
        config, labels = json.loads(file.metadata()["config"])["model"], json.loads(file.metadata()["labels"])
    texts = (models / "reviews.txt").read_text()
    answers = [json.loads(line) for line in run("predict", models / name, "--json", "--device", "cpu", input=texts).stdout.splitlines()]
    for text, answer in zip(texts.splitlines(), answers, strict=True):
        tokens = torch.tensor([list(text.encode())[:config["max_length"]]])
        probabilities = plain_model.classify(config, parameters, tokens).softmax(1)[0]
        assert answer["label"] == labels[probabilities.argmax()]
        assert abs(answer["probability"] - probabilities.max().item()) < 1e-4


def test_the_language_model_writes_out_of_the_box(tmp_path):
    folder = models / "enwik8-hkt"
    assert (folder / "model.safetensors").stat().st_size <= 10e6
    process = run("generate", folder, "--prompt", "The history of ", "--tokens", 60, "--temperature", 0, "--json", "--device", "cpu", data=tmp_path / "none")
    assert process.returncode == 0, process.stderr
    text = json.loads(process.stdout)["text"]
    assert len(text.encode()) == 60
    with safe_open(folder / "model.safetensors", "pt") as file:
        parameters = {key: file.get_tensor(key).double() for key in file.keys()}
        config = json.loads(file.metadata()["config"])
    tokens = torch.tensor([list(("The history of " + text).encode())])
    best = plain_model.predict_next(config["model"], parameters, tokens)[0].topk(2, dim=1)
    clear = best.values[:-1, 0] - best.values[:-1, 1] > 1e-3
    prompt = len("The history of ")
    wrong = best.indices[prompt - 1 : -1, 0] != tokens[0, prompt:]
    assert not (wrong & clear[prompt - 1 :]).any()


@pytest.mark.parametrize("name", ["imdb-hkt", "imdb-standard", "enwik8-hkt"])
def test_they_name_no_folder_of_the_machine_that_made_them(name):
    config = json.loads((models / name / "config.json").read_text())
    with safe_open(models / name / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["config"])["data"].get("source", "") == config["data"].get("source", "") == ""


def test_an_exported_model_predicts_what_the_run_does(tmp_path):
    copy = tmp_path / "copy"
    process = run("export", models / "imdb-hkt", "--out", copy, "--precision", "float32")
    assert process.returncode == 0, process.stderr
    texts = (models / "reviews.txt").read_text()
    assert run("predict", copy, input=texts).stdout == run("predict", models / "imdb-hkt", input=texts).stdout
    again = run("export", models / "imdb-hkt", "--out", copy)
    assert again.returncode == 2 and "copy" in again.stderr
    wrong = run("export", models / "imdb-hkt", "--out", tmp_path / "other", "--precision", "int8")
    assert wrong.returncode == 2 and "bfloat16" in wrong.stderr and not (tmp_path / "other").exists()


def test_training_cannot_go_on_from_a_copy(tmp_path):
    copy = tmp_path / "copy"
    assert run("export", models / "imdb-hkt", "--out", copy).returncode == 0
    before = (copy / "model.safetensors").read_bytes()
    refused(run("train", "--resume", copy, data=tmp_path / "none"), "cannot be resumed")
    assert (copy / "model.safetensors").read_bytes() == before


def test_what_cannot_be_written_is_said(tmp_path):
    with open("/dev/full", "w") as full:
        process = subprocess.run(command("predict", models / "imdb-hkt"), input="a\n", stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1 and "could not be written" in process.stderr
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert run("report", models / "imdb-hkt", "--out", pipe).returncode == 2 and pipe.is_fifo(), "not a file, and replaced"
