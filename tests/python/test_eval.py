# SPDX-License-Identifier: Apache-2.0
"""hkt eval --data: a file of labels and texts, or of any text, scored by a model that comes without its data."""
import csv
import json
import math
import pathlib

import plain_model
import pytest
import torch
import torch.nn.functional as F
from program import refused, run, train_arguments
from safetensors import safe_open
from test_predict import lines

models = pathlib.Path(__file__).resolve().parents[2] / "models"
MODEL = ["eval", models / "imdb-hkt", "--device", "cpu"]
COUNT = 120


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Texts with labels that are right for most of them, and the answers of hkt predict."""
    folder = tmp_path_factory.mktemp("labelled")
    texts = [text + " x" * (i % 7) for i, text in enumerate(lines(COUNT, seed=5))] + ["long " * 400]
    process = run("predict", models / "imdb-hkt", "--json", "--device", "cpu", input="\n".join(texts))
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    labels = [answer["label"] if i % 5 else {"neg": "pos", "pos": "neg"}[answer["label"]] for i, answer in enumerate(answers)]
    (folder / "texts.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True)))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in zip(labels, texts, strict=True)))
    return folder, labels, texts, answers


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_every_figure_is_that_of_the_predictions(labelled, data, form):
    folder, labels, texts, answers = labelled
    before = sorted(path.name for path in (models / "imdb-hkt").iterdir())
    process = run(*MODEL, "--data", folder / f"texts.{form}", "--json", "--mistakes", 4, data=data)
    assert process.returncode == 0 and "1 of 121 sequences are longer than model.max_length" in process.stderr
    assert sorted(path.name for path in (models / "imdb-hkt").iterdir()) == before, "the model's folder was written to"
    result = json.loads(process.stdout)
    assert result["data"] == str(folder / f"texts.{form}") and "split" not in result
    pairs = [(label, answer["label"]) for label, answer in zip(labels, answers, strict=True)]
    assert result["sequences"] == len(pairs) == COUNT + 1 and result["correct"] == sum(a == b for a, b in pairs)
    own = [answer["probabilities"][label] for label, answer in zip(labels, answers, strict=True)]
    assert result["loss"] == pytest.approx(-sum(map(math.log, own)) / len(own), rel=1e-4)
    for row in result["labels"]:
        true = sum(pair == (row["label"],) * 2 for pair in pairs)
        recall, precision = true / sum(a == row["label"] for a, _ in pairs), true / sum(b == row["label"] for _, b in pairs)
        assert row["recall"] == row["accuracy"] == pytest.approx(recall) and row["precision"] == pytest.approx(precision)
        assert row["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
        for other, count in result["confusion"][row["label"]].items():
            assert count == pairs.count((row["label"], other))
    assert result["macro_f1"] == pytest.approx(sum(row["f1"] for row in result["labels"]) / 2)
    check_calibration(result["calibration"], pairs, [answer["probability"] for answer in answers])
    worst = sorted((i for i, (a, b) in enumerate(pairs) if a != b), key=lambda i: own[i])[:4]
    assert [mistake["example"] for mistake in result["mistakes"]] == [i + 1 for i in worst]
    for i, mistake in zip(worst, result["mistakes"], strict=True):
        assert (mistake["label"], mistake["predicted"]) == pairs[i] and mistake["text"] == texts[i][:1024]
        assert mistake["probability"] == pytest.approx(own[i], abs=1e-4)


def check_calibration(calibration, pairs, confidence):
    error = 0
    for i, part in enumerate(calibration["bins"]):
        inside = [(c, a == b) for c, (a, b) in zip(confidence, pairs, strict=True) if i / 10 < c <= (i + 1) / 10]
        assert part["sequences"] == len(inside)
        if inside:
            mean, right = sum(c for c, _ in inside) / len(inside), sum(r for _, r in inside) / len(inside)
            assert part["confidence"] == pytest.approx(mean, abs=1e-4) and part["accuracy"] == pytest.approx(right)
            error += len(inside) / len(pairs) * abs(mean - right)
    assert calibration["expected_error"] == pytest.approx(error, abs=1e-4) and error > 0


def test_a_file_with_columns_of_its_own(labelled, data, tmp_path):
    folder, labels, texts, _ = labelled
    with (tmp_path / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "said", "stars"], *zip(range(len(texts)), texts, labels, strict=True)])
    expected = json.loads(run(*MODEL, "--data", folder / "texts.jsonl", "--json", data=data).stdout)
    found = json.loads(run(*MODEL, "--data", tmp_path / "texts.csv", "--set", "data.text=said", "data.label=stars", "--json", data=data).stdout)
    assert found["confusion"] == expected["confusion"] and found["loss"] == pytest.approx(expected["loss"])
    refused(run(*MODEL, "--data", tmp_path / "texts.csv", "--set", "train.epochs=3", data=data), "train.epochs=3", "data.label")
    refused(run(*MODEL, "--data", tmp_path / "texts.csv", "--set", "data.text=review", data=data), "review", '"said"')


def test_it_is_readable_on_a_terminal(labelled, data):
    process = run(*MODEL, "--data", labelled[0] / "texts.tsv", data=data)
    assert process.returncode == 0, process.stderr
    printed = process.stdout
    assert "accuracy" in printed.splitlines()[0] and "precision" in printed and "calibration: expected error" in printed
    assert "confusion" in printed and "the worst mistakes, 5 of" in printed and max(map(len, printed.splitlines())) < 450
    assert "mistakes" not in run(*MODEL, "--data", labelled[0] / "texts.tsv", "--mistakes", 0, data=data).stdout


def test_what_cannot_be_scored_is_said(labelled, data, tmp_path):
    (tmp_path / "other.tsv").write_text("pos\tfine\nnegg\tbad\n")
    refused(run(*MODEL, "--data", tmp_path / "other.tsv", data=data), "example 2 of", "other.tsv", '"negg"', 'nearest: "neg"')
    refused(run(*MODEL, "--data", tmp_path / "none.tsv", data=data), "none.tsv")
    (tmp_path / "bad.tsv").write_text("pos fine\n")
    refused(run(*MODEL, "--data", tmp_path / "bad.tsv", data=data), "bad.tsv", "line 1", "no tab")
    refused(run(*MODEL, "--data", tmp_path / "other.tsv", "--split", "train", data=data), "--data", "--split")
    refused(run(*MODEL, "--data", tmp_path / "other.tsv", "--tokens", 5, data=data), "--tokens is for language models")
    assert "--mistakes" in run(*MODEL, "--data", tmp_path / "other.tsv", "--mistakes", -1, data=data).stderr


LANGUAGE = ["eval", models / "enwik8-hkt", "--device", "cpu"]


def test_a_language_model_scores_any_text(data, tmp_path):
    text = "== History ==\nThe café was built in [[1889]] by engineers.\n" * 3
    (tmp_path / "text.txt").write_text(text)
    found = json.loads(run(*LANGUAGE, "--data", tmp_path / "text.txt", "--json", data=data).stdout)
    with safe_open(models / "enwik8-hkt" / "model.safetensors", "pt") as file:
        config, parameters = json.loads(file.metadata()["config"])["model"], {key: file.get_tensor(key).float() for key in file.keys()}
    tokens = torch.tensor([list(text.encode())])
    expected = F.cross_entropy(plain_model.predict_next(config, parameters, tokens)[0, :-1], tokens[0, 1:])
    assert found["data"] == str(tmp_path / "text.txt") and found["bytes"] == len(text.encode()) - 1
    assert found["loss"] == pytest.approx(expected.item(), abs=1e-3)
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / math.log(2))
    assert not (models / "enwik8-hkt" / "predictions.safetensors").exists()
    # Lines of JSON are documents; a model of enwik8 does not know their ends.
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": text[i:i + 30]}) + "\n" for i in range(0, len(text), 30)))
    lines_found = json.loads(run(*LANGUAGE, "--data", tmp_path / "lines.jsonl", "--json", data=data).stdout)
    assert lines_found["loss"] == pytest.approx(found["loss"], abs=1e-6)
    some = run(*LANGUAGE, "--data", tmp_path / "text.txt", "--tokens", 50, data=data)
    assert "(49 bytes)" in some.stdout and "by position" in some.stdout


def test_what_is_no_text_for_a_language_model_is_said(data, tmp_path):
    (tmp_path / "one.txt").write_text("a")
    (tmp_path / "zero.txt").write_bytes(b"a\0b")
    refused(run(*LANGUAGE, "--data", tmp_path / "one.txt", data=data), "one.txt", "single byte")
    refused(run(*LANGUAGE, "--data", tmp_path / "zero.txt", data=data), "zero.txt", "byte 0")
    refused(run(*LANGUAGE, "--data", tmp_path / "none.txt", data=data), "none.txt")
    refused(run(*LANGUAGE, "--data", tmp_path / "one.txt", "--set", "data.text=x", data=data), "--set", "language model")


def test_expressions_are_read_as_the_model_reads_them(data, tmp_path):
    """A ListOps model has other tokens than bytes."""
    assert run(*train_arguments(tmp_path / "run", "train.epochs=1"), data=data).returncode == 0
    (tmp_path / "test.tsv").write_text("4\t[MAX 4 3 ]\n1\t[MIN 1 2 ]\n")
    result = json.loads(run("eval", tmp_path / "run", "--data", tmp_path / "test.tsv", "--json", data=data).stdout)
    answers = [json.loads(line) for line in run("predict", tmp_path / "run", "--json", input="[MAX 4 3 ]\n[MIN 1 2 ]\n").stdout.splitlines()]
    wrong = [(i + 1, label) for i, label in enumerate("41") if answers[i]["label"] != label]
    assert result["sequences"] == 2 and sorted((row["example"], row["label"]) for row in result["mistakes"]) == wrong
    assert {row["text"] for row in result["mistakes"]} <= {"[MAX 4 3 ]", "[MIN 1 2 ]"}
    (tmp_path / "test.tsv").write_text("4\t[MAX 4 3 ]\n1\t[MIN 1\n")
    refused(run("eval", tmp_path / "run", "--data", tmp_path / "test.tsv", data=data), "example 2 of", "missing")


def test_the_score_of_a_split_is_recorded_with_the_run(data, tmp_path):
    folder = tmp_path / "run"
    assert run(*train_arguments(folder, "train.epochs=1"), data=data).returncode == 0
    process = run("eval", folder, "--device", "cpu", "--split", "validation", "--json", "--mistakes", 2, data=data)
    assert process.returncode == 0, process.stderr
    printed, recorded = json.loads(process.stdout), json.loads((folder / "score.json").read_text())
    assert len(printed["mistakes"]) == 2 and len(recorded["mistakes"]) == 20
    assert recorded.pop("mistakes")[:2] == printed.pop("mistakes")
    assert recorded.pop("model").startswith("crc32:") and recorded == printed
