# SPDX-License-Identifier: Apache-2.0
"""The control experiments and what they are made of: other kinds of attention, random starts, phases, n-grams, corrected tests."""
import json
import math
import random

import pytest
from program import TINY, refused, run, train_arguments

import hkt

PEERS = {
    "window": ["model.window=3"],
    "bigbird": ["model.window=2", "model.random_keys=4"],
    "linformer": ["model.features=8"],
    "performer": ["model.features=16"],
    "h1d": ["model.block_size=4"],
}
TEXTS = ["model.width=16", "model.heads=2", "model.feedforward=16", "model.blocks=1", "model.max_length=48", "train.batch=16", "train.epochs=2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def reviews(count, seed):
    pick = random.Random(seed)
    for i in range(count):
        good = pick.random() < 0.5
        words = [pick.choice(["a", "film", "of", "words"]) for _ in range(pick.randrange(2, 12))]
        words.insert(pick.randrange(len(words)), "good" if good else "bad")
        yield ("pos" if good else "neg"), f"{' '.join(words)} {i}"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for name, count in (("train", 240), ("test", 60)):
        rows = reviews(count, seed=count)
        (folder / f"{name}.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    return folder


def train_on_texts(folder, texts, data, *changes):
    paths = [f"data.train={texts / 'train.tsv'}", f"data.test={texts / 'test.tsv'}"]
    process = run("train", "text", "--threads", 1, "--device", "cpu", "--quiet", "--out", folder, "--set", *TEXTS, *paths, *changes, data=data)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, texts, data):
    return train_on_texts(tmp_path_factory.mktemp("runs") / "trained", texts, data)


# ---- other kinds of attention


@pytest.mark.parametrize("kind", PEERS)
def test_a_peer_is_trained_and_used_and_nothing_else_takes_it(kind, tmp_path, data):
    folder = tmp_path / kind
    process = run(*train_arguments(folder, f"model.attention={kind}", "model.levels=1", "train.epochs=1", *PEERS[kind]), data=data)
    assert process.returncode == 0, process.stderr
    assert run("eval", folder, "--device", "cpu", data=data).returncode == 0
    answer = run("predict", folder, "--device", "cpu", input="[MAX 4 [MIN 7 2 ] 3 ]\n")
    assert answer.returncode == 0 and answer.stdout.strip()
    for command in (["theory", folder], ["explain", folder, "--text", "[MAX 4 2 ]", "--out", tmp_path / "page.html"]):
        refused(run(*command, data=data), f'model.attention "{kind}"', "alone")
    refused(run("export", folder, "--out", tmp_path / "hf", "--hf"), f'model.attention "{kind}"')
    with pytest.raises(ValueError, match=f'model.attention is "{kind}"; it must be "hkt", the one kind that Python has') as refusal:
        hkt.load(folder)
    assert str(refusal.value).count("\n") == 0
    exported = tmp_path / "exported"
    assert run("export", folder, "--out", exported, "--precision", "float32").returncode == 0
    again = run("predict", exported, "--device", "cpu", input="[MAX 4 [MIN 7 2 ] 3 ]\n")
    assert again.stdout == answer.stdout, "what is drawn at random is not in the file and must be drawn again"


def test_a_model_of_python_goes_to_the_program(tmp_path):
    model = hkt.nn.Classifier(hkt.config.ModelConfig(width=16, heads=2, feedforward=16, blocks=1, classes=2, positions="learned", position_scale=1.0))
    assert 0.9 < model.positions.std().item() < 1.1
    hkt.save(model, tmp_path / "saved", labels=["no", "yes"])
    assert run("predict", tmp_path / "saved", "--device", "cpu", input="a text\n").returncode == 0
    assert hkt.load(tmp_path / "saved").config == model.config
    for key, value, message in (("attention", "windw", "nearest"), ("block_size", 3, "even"), ("position_scale", -1, "from 0 to below 100")):
        with pytest.raises(ValueError, match=f"model.{key} is .*{message}"):
            hkt.config.ModelConfig(**{key: value})


def test_settings_that_contradict_each_other(tmp_path, data):
    def train(*changes, preset="listops"):
        return run("train", preset, "--out", tmp_path / "none", "--set", *changes, data=data)

    refused(train("model.attention=window"), "model.levels is 3", "it must be 1")
    refused(train("model.attention=linformer", "model.levels=1", "model.mask=causal"), "no causal form")
    refused(train("model.attention=h1d", "model.levels=1", preset="enwik8"), "a language model needs", "hkt")
    refused(train("train.random_start=4"), "train.random_start is 4", "ListOps")
    refused(train("train.random_start=4", preset="enwik8"), "train.random_start is 4", "windows")
    refused(train("train.random_start=0", preset="imdb"), "train.random_start is 0; it must be an integer from 1")


# ---- where sequences begin


def test_phases_are_the_mean_over_beginnings(trained, texts, tmp_path, data):
    rows = [line.split("\t", 1) for line in (texts / "test.tsv").read_text().splitlines()]
    lines = [text for _, text in rows] + ["ab", "x", "long " * 30]

    def answers(inputs, *options):
        process = run("predict", trained, "--json", "--device", "cpu", *options, input="\n".join(inputs) + "\n")
        assert process.returncode == 0, process.stderr
        return [json.loads(line)["probabilities"] for line in process.stdout.splitlines()]

    mean = answers(lines, "--phases", 3)
    parts = [answers([line[min(skip, len(line) - 1):] for line in lines]) for skip in range(4)]
    for i, found in enumerate(mean):
        for label, probability in found.items():
            assert probability == pytest.approx(sum(part[i][label] for part in parts[:3]) / 3, abs=1e-5)

    of_python = hkt.Predictor(trained).predict(lines, phases=3)
    for found, answer in zip(mean, of_python, strict=True):
        assert answer.probabilities == pytest.approx(found, abs=1e-5)
    with pytest.raises(ValueError, match="phases is 0"):
        hkt.Predictor(trained).predict(lines, phases=0)

    process = run("eval", trained, "--split", "test", "--phases", 3, "--device", "cpu", "--json", data=data)
    assert process.returncode == 0, process.stderr
    result = json.loads(process.stdout)
    assert result == json.loads((trained / "phases.json").read_text()) and len(result["starts"]) == 4
    label_of = lambda found: max(found, key=found.get)
    right = lambda part: sum(label_of(part[i]) == label for i, (label, _) in enumerate(rows)) / len(rows)
    for skip, start in enumerate(result["starts"]):
        assert start["accuracy"] == pytest.approx(right(parts[skip]))
        changed = sum(label_of(parts[skip][i]) != label_of(parts[0][i]) for i in range(len(rows))) / len(rows)
        assert start["changed"] == pytest.approx(changed)
    assert result["mean_accuracy"] == pytest.approx(right(mean))
    assert "other labels" in run("eval", trained, "--phases", 2, "--device", "cpu", data=data).stdout


def test_phases_are_refused_where_nothing_can_be_left_out(trained, tmp_path, data):
    folder = tmp_path / "listops"
    assert run(*train_arguments(folder, "train.epochs=1"), data=data).returncode == 0
    for command in ("eval", "predict"):
        refused(run(command, folder, "--phases", 2, input="[MAX 4 2 ]\n", data=data), "ListOps", "cannot be cut")
        assert run(command, trained, "--phases", 0, data=data).returncode == 2


def test_random_starts_change_training_and_nothing_else(trained, texts, tmp_path, data):
    losses = lambda folder: [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines() if '"epoch"' in line and "train_loss" in line]
    first = train_on_texts(tmp_path / "first", texts, data, "train.random_start=4")
    again = train_on_texts(tmp_path / "again", texts, data, "train.random_start=4")
    assert (first / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert losses(first)[0]["train_loss"] != losses(trained)[0]["train_loss"]
    same = train_on_texts(tmp_path / "same", texts, data, "train.random_start=1")
    assert [epoch["train_loss"] for epoch in losses(same)] == [epoch["train_loss"] for epoch in losses(trained)]


# ---- the experiments

FEW = [*TINY, "train.epochs=1", "data.train_samples=96", "data.test_samples=90"]


@pytest.fixture(scope="module")
def controls(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("controls")
    process = run("reproduce", "controls-listops", "--budget", "quick", "--device", "cpu", "--threads", 2, "--out", folder, "--only", "standard",
                  "matched", "convolution", "linformer", "h1d", "hkt", "level-1", "--set", *FEW, data=data)
    assert process.returncode == 0, process.stderr
    return folder, process.stdout


def test_a_table_of_controls(controls, data):
    folder, printed = controls
    results = json.loads((folder / "controls-listops-quick/results.json").read_text())
    models = {model["name"]: model for model in results["models"]}
    assert set(models) == {"standard", "matched", "convolution", "linformer", "h1d", "hkt", "level-1"}
    for name in ("linformer", "h1d", "matched"):
        assert models["hkt"]["parameters"] <= models[name]["parameters"] < 1.05 * models["hkt"]["parameters"]
    records = {record["name"]: record for record in results["runs"]}
    for model in models.values():
        test = records[model["runs"][0]]["test"]
        bits = bin(int("1" + test["correct_bits"], 16))[3:][: test["sequences"]]
        assert bits.count("1") == test["correct"] and len(test["correct_bits"]) == math.ceil(test["sequences"] / 4)
        assert records[model["runs"][0]]["config"]["data"]["seed"] == 1, "the test set of other experiments"
        for groups in (model["by_depth"], model["by_length"]):
            assert sum(group["sequences"] for group in groups) == test["sequences"]
            assert sum(group["sequences"] * group["accuracy"] for group in groups) / 100 == pytest.approx(test["correct"])
    assert [row["name"] for row in results["linear"]] == ["1-grams", "2-grams", "3-grams", "4-grams"]
    for row in results["linear"]:
        assert bin(int(row["correct_bits"][0], 16)).count("1") == pytest.approx(row["test_accuracy"][0] * 0.9)
    for comparison in results["comparisons"]:
        low, high = comparison["sequences_interval"]
        assert low <= comparison["gain"] <= high and comparison["verdict"] == "one seed"
        assert comparison["interval"] is comparison["holm_p"] is comparison["welch_interval"] is None
    for word in ("over sequences", "one seed", "2-grams", "hkt by depth", "hkt by tokens"):
        assert word in printed


def test_a_table_of_phases(tmp_path, data):
    for split, count in (("train", 80), ("test", 30)):
        for i, (label, text) in enumerate(reviews(count, seed=count)):
            file = tmp_path / "aclImdb" / split / label / f"{i}_1.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    settings = [change for change in TEXTS if "epochs" not in change] + ["train.epochs=1", f"data.source={tmp_path / 'aclImdb'}"]
    process = run("reproduce", "controls-phase", "--device", "cpu", "--threads", 2, "--out", tmp_path, "--only", "hkt", "hkt-random", "--set", *settings, data=data)
    assert process.returncode == 0, process.stderr
    results = json.loads((tmp_path / "controls-phase-quick/results.json").read_text())
    for model, record in zip(results["models"], results["runs"], strict=True):
        phases = model["phases"]
        assert phases["phases"] == 4 and len(phases["accuracy_without_first"]) == len(phases["changed_without_first"]) == 5
        assert phases["accuracy_without_first"][0] == pytest.approx(model["mean"], abs=1e-3) and phases["changed_without_first"][0] == 0
        assert phases["mean_test_accuracy"] == [pytest.approx(100 * record["phases"]["mean_accuracy"])]
        assert phases["gain"] == pytest.approx(phases["mean"] - model["mean"]) and phases["verdict"] == "one seed"
        assert record["config"]["model"]["position_scale"] == 1
    assert [record["config"]["train"]["random_start"] for record in results["runs"]] == [1, 4]
    assert "mean of 4 phases" in process.stdout


def test_one_of_its_runs_is_checked(controls, tmp_path, data):
    published = controls[0] / "controls-listops-quick/results.json"
    process = run("reproduce", "--check", published, "--run", "h1d-seed0", "--device", "cpu", "--threads", 1, "--out", tmp_path, data=data)
    assert process.returncode == 0 and "as published" in process.stdout, process.stderr
    page = tmp_path / "report.html"
    assert run("report", published, "--out", page).returncode == 0 and "controls-listops" in page.read_text()


def test_all_goes_on_behind_finished_experiments(controls, tmp_path, data):
    """With results of the same command in place of every experiment there is nothing to do, not even data to load."""
    results = json.loads((controls[0] / "controls-listops-quick/results.json").read_text())
    for name in ("listops", "scifar", "imdb"):
        own = {**results, "experiment": name, "command": f"hkt reproduce {name} --budget quick"}
        (tmp_path / f"{name}-quick").mkdir()
        (tmp_path / f"{name}-quick/results.json").write_text(json.dumps(own))
    process = run("reproduce", "all", "--budget", "quick", "--out", tmp_path, "--device", "cpu", data=tmp_path / "none")
    assert process.returncode == 0, process.stderr
    assert all(f"{name}-quick/results.json" in process.stdout for name in ("listops", "scifar", "imdb"))
