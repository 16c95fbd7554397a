# SPDX-License-Identifier: Apache-2.0
# Own labelled texts, as users have them: CSV with columns of any name, folders by class; what hkt says of them, and class weights.
import csv
import json
import random

import pytest
from program import metrics, refused, run
from safetensors.torch import load_file

SMALL = ["model.width=16", "model.heads=2", "model.feedforward=16", "model.blocks=1", "model.max_length=48", "train.batch=16"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def reviews(count, rare=0.5, seed=5):
    """Texts with commas, quotes and line ends, whose label one of their words tells."""
    pick = random.Random(seed)
    for i in range(count):
        stars = "5" if pick.random() < rare else "1"
        words = [pick.choice(["a", "film", "of", "words"]) for _ in range(5)]
        words.insert(pick.randrange(5), "good" if stars == "5" else "bad")
        yield stars, " ".join(words) + pick.choice([",", '"', "\n", "", "é"]) + str(i)


def write_csv(path, rows, **form):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, **form)
        writer.writerow(["id", "review", "stars"])
        writer.writerows([i, text, stars] for i, (stars, text) in enumerate(rows))
    return path


def write_folders(path, rows):
    for i, (stars, text) in enumerate(rows):
        file = path / stars / f"{i:05}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return path


def describe(*arguments, data):
    process = run("data", "describe", *arguments, "--json", data=data)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_same_rows_in_every_form(data, tmp_path):
    rows = sorted(reviews(60), key=lambda row: row[0])  # folders come class by class
    rows = [(stars, text.replace("\n", " ")) for stars, text in rows]
    names = ["--set", "data.text=review", "data.label=stars"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"stars": int(s), "review": t}) + "\n" for s, t in rows))
    (tmp_path / "plain.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
    all_forms = [
        describe(write_csv(tmp_path / "a.csv", rows), *names, data=data),
        describe(write_csv(tmp_path / "all.csv", rows, quoting=csv.QUOTE_ALL, lineterminator="\n"), *names, data=data),
        describe(write_csv(tmp_path / "a.tsv", rows, delimiter="\t"), *names, "data.quotes=yes", data=data),
        describe(tmp_path / "a.jsonl", *names, data=data),
        describe(tmp_path / "plain.tsv", data=data),
        describe(write_folders(tmp_path / "folders", rows), data=data),
    ]
    assert all_forms[0]["labels"] == ["1", "5"] and all_forms[0]["splits"][0]["sequences"] == 54
    for other in all_forms[1:]:
        assert other == all_forms[0]


def test_what_python_writes_is_read_byte_by_byte(data, tmp_path):
    rows = list(reviews(200))
    write_csv(tmp_path / "a.csv", rows)
    found = describe(tmp_path / "a.csv", "--set", "data.text=review", "data.label=stars", "data.validation=0", data=data)
    lengths = sorted(len(text.encode()) for _, text in rows)
    assert found["splits"][0]["lengths"] == {"shortest": lengths[0], "median": lengths[99], "mean": sum(lengths) / 200,
                                             "percentile_95": lengths[189], "longest": lengths[-1]}
    assert found["splits"][0]["by_class"] == [sum(stars == label for stars, _ in rows) for label in ("1", "5")]


def test_what_is_wrong_with_the_data_is_said(data, tmp_path):
    train = "".join(f"a\tword {i}\n" for i in range(90)) + "".join(f"b\tother {i}\n" for i in range(9)) + "b\tword 0\n"
    (tmp_path / "train.tsv").write_text(train)
    (tmp_path / "test.tsv").write_text("a\tword 1\na\tnew\n")
    arguments = ["data", "describe", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv", "--set", "model.max_length=6"]
    process = run(*arguments, data=data)
    assert process.returncode == 0, process.stderr
    for sentence in ["1 validation sequences are also in training", "1 test sequences are also in training",
                     'no test sequence has the label "b"', "the classes are unequal"]:
        assert sentence in process.stderr
    assert "are longer than model.max_length, 6, and are cut there" in process.stdout
    assert "linear model of byte n-grams" in process.stdout
    found = json.loads(run(*arguments, "--json", data=data).stdout)
    assert found["imbalance"] == 9 and len(found["warnings"]) == 4
    assert found["linear_accuracy"] == 0.9


@pytest.mark.parametrize("content, changes, words", [
    (b"a,b\nc,d,e\n", [], ["x.csv, line 2 has 3 fields; the first line has 2"]),
    (b"id,review,stars\n1,x,2\n", ["data.text=body"], ['no column "body"', '"id", "review", "stars"']),
    (b"id,review,stars\n1,x,2\n", ["data.text=review"], ["data.label", '"id", "review", "stars"']),
    (b'a,b\nc,"d\n', [], ["x.csv, line 2 opens a quote in field 2 that is never closed"]),
    (b"a,b\nc,\x00\n", [], ["x.csv, line 2 contains the byte 0"]),
    (b"a,b\n\n", [], ["x.csv, line 2 is empty"]),
    (b"", [], ["x.csv has no line"]),
    (b"a,b\n", ["data.header=maybe"], ["data.header", '"auto", "yes", "no"']),
    (b"a,b\n", ["data.text=0"], ["data.text is 0", "1 to 10000"]),
])
def test_bad_files_are_refused_in_a_sentence(content, changes, words, data, tmp_path):
    (tmp_path / "x.csv").write_bytes(content)
    refused(run("data", "describe", tmp_path / "x.csv", *(["--set", *changes] if changes else []), data=data), *words)


def test_bad_folders_are_refused_in_a_sentence(data, tmp_path):
    (tmp_path / "f").mkdir()
    refused(run("data", "describe", tmp_path / "f", data=data), "has no folder in it")
    (tmp_path / "f/pos").mkdir()
    (tmp_path / "f/pos/1.txt").write_text("x")
    (tmp_path / "f/neg").mkdir()
    refused(run("data", "describe", tmp_path / "f", data=data), "f/neg has no file", "*.txt")
    refused(run("data", "describe", tmp_path / "nowhere.csv", data=data), "nowhere.csv cannot be read")


def train(folder, source, *changes, data):
    process = run("train", "text", "--threads", 1, "--device", "cpu", "--out", folder, "--set", *SMALL, f"data.train={source}",
                  "data.text=review", "data.label=stars", *changes, data=data)
    assert process.returncode == 0, process.stderr
    return process


def by_label(folder, data):
    result = json.loads(run("eval", folder, "--split", "validation", "--json", data=data).stdout)
    return {row["label"]: row["accuracy"] for row in result["labels"]}


def test_class_weights_help_the_rare_class(data, tmp_path):
    source = write_csv(tmp_path / "a.csv", reviews(800, rare=0.08))
    few_steps = ["train.epochs=1", "train.learning_rate=0.002"]
    plain = train(tmp_path / "plain", source, *few_steps, data=data)
    assert "train.class_weights=balanced" in plain.stderr
    train(tmp_path / "balanced", source, *few_steps, "train.class_weights=balanced", data=data)
    assert by_label(tmp_path / "plain", data)["5"] == 0
    assert by_label(tmp_path / "balanced", data)["5"] > 0
    [epoch] = [line for line in metrics(tmp_path / "balanced") if line["event"] == "epoch"]
    rates = by_label(tmp_path / "balanced", data).values()
    assert epoch["validation_weighted_accuracy"] == pytest.approx(sum(rates) / len(rates), abs=0.02)
    assert metrics(tmp_path / "balanced")[-1]["best_validation_weighted_accuracy"] == epoch["validation_weighted_accuracy"]
    assert "validation_weighted_accuracy" not in metrics(tmp_path / "plain")[-2]
    refused(run("train", "lm", "--out", tmp_path / "o", "--set", "train.class_weights=balanced", data=data), "for classifiers")


def test_a_linear_model_that_is_better_is_named(data, tmp_path):
    source = write_csv(tmp_path / "a.csv", reviews(400))
    short = train(tmp_path / "short", source, "train.epochs=1", "train.learning_rate=1e-6", data=data)
    assert "a linear model of byte n-grams: 100.00 % of 40 validation sequences" in short.stdout
    assert "a linear model of byte n-grams is better: 100.00 % of 40 validation sequences against" in short.stderr
    quiet = run("train", "text", "--quiet", "--threads", 1, "--out", tmp_path / "quiet", "--set", *SMALL, f"data.train={source}",
                "data.text=review", "data.label=stars", "train.epochs=1", data=data)
    assert quiet.returncode == 0 and "linear" not in quiet.stdout + quiet.stderr


def test_a_sweep_over_texts_starts_from_weights_and_names_the_linear_model(data, tmp_path):
    source = write_csv(tmp_path / "a.csv", reviews(200, rare=0.2))
    train(tmp_path / "first", source, "train.epochs=1", "train.learning_rate=1e-6", data=data)
    process = run("tune", "text", "--init", tmp_path / "first", "--jobs", 2, "--threads", 2, "--device", "cpu", "--out", tmp_path / "t",
                  "--grid", "train.learning_rate=0,1e-7", "--set", f"data.train={source}", "data.text=review", "data.label=stars",
                  "train.epochs=1", "train.class_weights=balanced", data=data)
    assert process.returncode == 0, process.stderr
    assert "a linear model of byte n-grams is better" in process.stderr
    for one in json.loads((tmp_path / "t/tune.json").read_text())["runs"]:
        end = metrics(tmp_path / "t" / one["name"])[-1]
        assert one["best_validation"] == end["best_validation_weighted_accuracy"] != end["best_validation_accuracy"], "chosen as the loss counts"
    still = tmp_path / "t/learning_rate=0"
    assert load_file(still / "model.safetensors")["embedding.weight"].equal(load_file(tmp_path / "first/model.safetensors")["embedding.weight"])
