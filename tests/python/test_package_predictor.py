# SPDX-License-Identifier: Apache-2.0
"""hkt.Predictor answers as hkt predict does: in order, whatever is beside a text, from several threads."""
import json
import threading
from pathlib import Path

import pytest
import torch
from program import run
from test_predict import lines

import hkt
from hkt.config import ModelConfig

models = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def predictor():
    return hkt.Predictor(models / "imdb-hkt")


def test_it_answers_as_the_program_does(predictor):
    texts = lines(300, seed=9) + ["x" * 3000]
    found = predictor.predict(texts)
    process = run("predict", models / "imdb-hkt", "--json", "--device", "cpu", input="\n".join(texts))
    for own, line in zip(found, process.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        assert own.label == answer["label"] and own.probability == pytest.approx(answer["probability"], abs=1e-4)
        assert own.probabilities == pytest.approx(answer["probabilities"], abs=1e-4) and own.error is None
    assert [own.cut for own in found] == [False] * 300 + [True]
    assert predictor.predict([]) == []


def test_a_text_that_cannot_be_labelled_spoils_no_other(predictor):
    found = predictor.predict(["good", "", "a\0b", b"caf\xe9", "\udce9"])
    assert [own.label is None for own in found] == [False, True, True, False, False]
    assert "empty" in found[1].error and "byte 0" in found[2].error and found[1].probabilities == {}
    with pytest.raises(TypeError, match="one text"):
        predictor.predict("good")


def test_threads_share_one(tmp_path):
    model = hkt.nn.Classifier(ModelConfig(width=32, classes=3, positions="rotary"))
    hkt.save(model, tmp_path, labels=["a", "b", "c"])
    texts = [lines(30, seed=i) for i in range(6)]
    shared, alone, found = hkt.Predictor(tmp_path), hkt.Predictor(tmp_path), {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: shared.predict(texts[i])})) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        wanted = [own.probabilities for own in alone.predict(texts[i])]
        assert [own.probabilities for own in found[i]] == [pytest.approx(row, abs=1e-6) for row in wanted]


def test_what_is_no_classifier_of_texts(tmp_path):
    with pytest.raises(ValueError, match="language model"):
        hkt.Predictor(models / "enwik8-hkt")
    with pytest.raises(FileNotFoundError, match="not a folder"):
        hkt.Predictor(tmp_path / "none")
    model = hkt.nn.Classifier(ModelConfig(width=32, classes=2))
    model.origin = {"data": {"task": "listops"}}
    hkt.save(model, tmp_path / "run")
    with pytest.raises(ValueError, match="listops"):
        hkt.Predictor(tmp_path / "run")
    assert torch.is_grad_enabled()
