# SPDX-License-Identifier: Apache-2.0
"""hkt reproduce with language models: an experiment end to end, its numbers and intervals, its page."""
import json
import math
import random
import re
from pathlib import Path

import numpy
import pytest
from browser import browser, needs_chromium  # noqa: F401
from program import refused, run
from safetensors.numpy import load_file

root = Path(__file__).resolve().parents[2]

TINY = [
    "model.width=16", "model.heads=2", "model.feedforward=16", "model.blocks=1", "model.max_length=32", "train.batch=4",
    "train.epochs=2", "train.epoch_steps=6", "train.validation_tokens=512", "data.validation=0.1",
]


KEPT = ["--only", "standard", "convolution", "hkt", "standard-longer"]  # of the full budget


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    folder = tmp_path_factory.mktemp("books")
    generator = random.Random(1)
    for number in range(4):
        lines = (f"{a} plus {b} is {a + b}" for a, b in ((generator.randrange(10), generator.randrange(10)) for _ in range(1200)))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    (folder / "other.md").write_text("not to be read " * 1000)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def reproduce(out, books, data, *arguments, budget="full"):
    changes = [f"data.train={books}", "data.pattern=*.txt", *TINY]
    return run("reproduce", "lm", "--budget", budget, "--device", "cpu", "--threads", 1, "--out", out, *arguments, "--set", *changes, data=data)


@pytest.fixture(scope="module")
def full(tmp_path_factory, books, data):
    """The folder of a finished experiment, and what was printed. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs")
    process = reproduce(folder, books, data, "--jobs", 2, *KEPT)
    assert process.returncode == 0, process.stderr
    return folder / "lm-full", process.stdout


def results_in(folder):
    return json.loads((folder / "results.json").read_text())


def test_the_numbers_are_those_of_eval(full, data):
    folder, _ = full
    results = results_in(folder)
    assert results["kind"] == "language" and [model["name"] for model in results["models"]] == KEPT[1:]
    records = {record["name"]: record for record in results["runs"]}
    for model in results["models"]:
        assert len(model["test_bits_per_byte"]) == len(model["runs"]) == 3
        assert model["mean"] == pytest.approx(numpy.mean(model["test_bits_per_byte"]))
        assert model["deviation"] == pytest.approx(numpy.std(model["test_bits_per_byte"], ddof=1))
        epochs = 3 if model["name"] == "standard-longer" else 2
        assert model["tokens"] == epochs * 6 * 4 * 32 and model["training_seconds"] > 0
        for name, bits in zip(model["runs"], model["test_bits_per_byte"]):
            assert records[name]["test"]["bits_per_byte"] == bits
    name = results["models"][2]["runs"][1]
    score = json.loads(run("eval", folder / name, "--json", "--threads", 1, data=data).stdout)
    assert score["bits_per_byte"] == pytest.approx(records[name]["test"]["bits_per_byte"], rel=1e-9)
    assert score["bytes"] == records[name]["test"]["bytes"]
    assert [row["bits_per_byte"] for row in score["by_position"]] == pytest.approx(
        [row["bits_per_byte"] for row in records[name]["test"]["by_position"]], rel=1e-9)


def test_what_is_stored_is_enough_to_compute_the_score_again(full):
    folder, _ = full
    for record in results_in(folder)["runs"]:
        stored = load_file(folder / record["name"] / "predictions.safetensors")
        assert stored["bytes"].tolist() == [4096] * (len(stored["bytes"]) - 1) + [record["test"]["bytes"] % 4096]
        bits = stored["loss"].sum() / stored["bytes"].sum() / math.log(2)
        assert bits == pytest.approx(record["test"]["bits_per_byte"], rel=1e-9)
        assert stored["correct"].sum() / stored["bytes"].sum() == pytest.approx(record["test"]["accuracy"])
        assert len(stored["loss"]) > 1 and numpy.ptp(stored["loss"]) > 0


# Quantiles of the t-distribution, 0.975, by degrees of freedom.
QUANTILES = {1: 12.7062047364, 2: 4.3026527297, 3: 3.1824463053, 4: 2.7764451052}


def test_intervals_are_those_of_the_formulas(full):
    folder, printed = full
    results = results_in(folder)
    values = {model["name"]: numpy.array(model["test_bits_per_byte"]) for model in results["models"]}
    assert {(c["model"], c["with"]) for c in results["comparisons"]} == {
        ("convolution", "standard"), ("hkt", "standard"), ("hkt", "convolution"), ("hkt", "standard-longer")}
    for comparison in results["comparisons"]:
        own, base = values[comparison["model"]], values[comparison["with"]]
        difference = own - base
        half = QUANTILES[2] * difference.std(ddof=1) / math.sqrt(3)
        assert comparison["difference"] == pytest.approx(difference.mean())
        assert comparison["interval"] == pytest.approx([difference.mean() - half, difference.mean() + half], rel=1e-6)
        low, high = comparison["interval"]
        assert comparison["verdict"] == ("not decided" if low <= 0 <= high else "lower" if high < 0 else "higher")
        # Welch's, of 2 to 4 degrees of freedom, lies between those of 2 and 4.
        error = math.sqrt(own.var(ddof=1) / 3 + base.var(ddof=1) / 3)
        welch = comparison["welch_interval"]
        assert QUANTILES[4] * error * 0.999999 <= (welch[1] - welch[0]) / 2 <= QUANTILES[2] * error * 1.000001
        assert sum(welch) / 2 == pytest.approx(difference.mean(), abs=1e-9)
        assert f"{comparison['model']} against {comparison['with']}: {comparison['difference']:+.4f} [{low:+.4f}, {high:+.4f}]" in printed
    assert "McNemar" not in printed


def test_rates_are_chosen_by_the_lowest_loss(full):
    folder, _ = full
    results = results_in(folder)
    records = {record["name"]: record for record in results["runs"]}
    *tuned, longer = results["models"]
    assert longer["name"] == "standard-longer" and "candidates" not in longer
    assert longer["learning_rate"] == tuned[0]["learning_rate"] and longer["runs"] == [f"standard-longer-seed{seed}" for seed in range(3)]
    for model in tuned:
        best = min(model["candidates"], key=lambda candidate: candidate["validation"])
        assert len(model["candidates"]) == 3 and model["runs"][0] == best["run"]
        last = json.loads((folder / best["run"] / "metrics.jsonl").read_text().splitlines()[-1])
        assert best["validation"] == pytest.approx(last["best_validation_loss"] / math.log(2))
        assert {records[name]["config"]["train"]["learning_rate"] for name in model["runs"]} == {model["learning_rate"]}
    unscored = [path for path in folder.glob("*learning_rate*/") if not (path / "predictions.safetensors").exists()]
    assert len(unscored) == 6, "a candidate that was not chosen has seen the test part"


def test_all_continue_the_same_prompt(full, books):
    folder, printed = full
    results = results_in(folder)
    samples = {record["name"]: record["sample"] for record in results["runs"] if "sample" in record}
    assert list(samples) == [model["runs"][0] for model in results["models"]]
    (prompt,) = {sample["prompt"] for sample in samples.values()}
    assert prompt in (books / "3.txt").read_text() and prompt.endswith("\n")
    assert all(sample["text"] for sample in samples.values())
    assert "the prompt, from the test part" in printed


def test_nothing_is_done_twice(full, books, data):
    folder, _ = full
    before = results_in(folder)
    names = ("model.safetensors", "predictions.safetensors", "sample.json")
    stamps = {path: path.stat().st_mtime_ns for name in names for path in folder.rglob(name)}
    # One was scored on another split since, and one lost its sample.
    changed, lost = (folder / before["models"][2]["runs"][0], folder / before["models"][0]["runs"][0])
    assert run("eval", changed, "--split", "validation", data=data).returncode == 0
    (lost / "sample.json").unlink()
    process = reproduce(folder.parent, books, data, *KEPT, "--json")
    assert process.returncode == 0, process.stderr
    (after,) = json.loads(process.stdout)
    for one, two in zip(before["models"], after["models"]):
        assert one["test_bits_per_byte"] == pytest.approx(two["test_bits_per_byte"], rel=1e-12)
    assert [record.get("sample") for record in before["runs"]] == [record.get("sample") for record in after["runs"]]
    repeated = {path.name for path, stamp in stamps.items() if path.stat().st_mtime_ns != stamp and path.parent not in (changed, lost)}
    assert repeated == set() and (changed / "model.safetensors").stat().st_mtime_ns == stamps[changed / "model.safetensors"]


def test_a_part_of_a_score_does_not_count(full, data):
    folder, _ = full
    name = results_in(folder)["models"][1]["runs"][0]
    before = (folder / name / "predictions.safetensors").read_bytes()
    assert run("eval", folder / name, "--tokens", 100, data=data).returncode == 0
    assert (folder / name / "predictions.safetensors").read_bytes() == before


def test_one_seed_has_no_interval(tmp_path, books, data):
    process = reproduce(tmp_path, books, data, budget="quick")
    assert process.returncode == 0, process.stderr
    results = results_in(tmp_path / "lm-quick")
    assert [model["name"] for model in results["models"]] == ["standard", "matched", "convolution", "hkt"]
    for comparison in results["comparisons"]:
        assert comparison["interval"] is None and comparison["welch_interval"] is None and comparison["verdict"] == "one seed"
    assert "one seed" in process.stdout
    page = tmp_path / "page.html"
    process = run("report", tmp_path / "lm-quick", "--out", page)
    assert process.returncode == 0 and "One seed, so nothing is decided." in process.stdout, process.stderr


def test_a_published_run_is_trained_again(full, tmp_path, books, data):
    folder, _ = full
    results = results_in(folder)
    name = results["models"][2]["runs"][1]

    def checked(path):
        return run("reproduce", "--check", path, "--out", tmp_path, "--run", name, "--device", "cpu", "--threads", 1, data=data)

    process = checked(folder / "results.json")
    assert process.returncode == 0, process.stderr
    assert "the predictions are bit-identical" in process.stdout and "inside the 95 % prediction interval" in process.stdout
    results["models"][2]["test_bits_per_byte"] = [1, 1.01, 1.02]
    (tmp_path / "results.json").write_text(json.dumps(results))
    process = checked(tmp_path / "results.json")
    assert process.returncode == 1 and "outside" in process.stdout, process.stdout + process.stderr


def test_step_times_are_taken_again(full, tmp_path, data):
    folder, _ = full
    before = results_in(folder)
    copy = tmp_path / "results.json"
    copy.write_text(json.dumps(before))
    process = run("reproduce", "--times", copy, "--threads", 1, "--device", "cpu", data=data)
    assert process.returncode == 0 and "bits per byte" in process.stdout, process.stderr
    after = json.loads(copy.read_text())
    assert after.pop("timed")["threads"] == 1 and after["models"][0]["step_ratio"] == 1
    for results in (before, after):
        for model in results["models"]:
            for key in ("step_seconds", "step_ratio", "attention_seconds", "attention_ratio"):
                assert model.pop(key) > 0
    assert after == before, "more than the times was changed"


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S).group(1))


def test_the_report_has_the_numbers(full, tmp_path):
    folder, _ = full
    page = tmp_path / "page.html"
    published = root / "results" / "listops-quick.json"
    process = run("report", folder, published, "--out", page)
    assert process.returncode == 0, process.stderr
    results, shown = results_in(folder), data_of(page)
    language, classifiers = shown["comparisons"]
    assert language["models"] == results["models"] and language["comparisons"] == results["comparisons"]
    assert classifiers["models"] == json.loads(published.read_text())["models"]
    assert [run["name"] for run in shown["runs"][:4]] == [model["runs"][0] for model in results["models"]]
    best = results["models"][2]
    assert f"{best['mean']:.3f} bits per byte on test" in shown["answers"][0]
    for comparison in results["comparisons"]:
        if comparison["model"] == "hkt":
            less = "less" if comparison["difference"] < 0 else "more"
            assert f"{abs(comparison['difference']):.3f} {less} than {comparison['with']} [" in shown["answers"][0]
    # A run by itself.
    process = run("report", folder / best["runs"][1], "--out", page)
    assert process.returncode == 0, process.stderr
    assert f"{best['test_bits_per_byte'][1]:.3f} bits per byte on test" in process.stdout


@needs_chromium
def test_the_page_opens_and_shows_both_kinds(full, browser, tmp_path):  # noqa: F811
    folder, _ = full
    page = tmp_path / "page.html"
    assert run("report", folder, root / "results" / "listops-quick.json", "--out", page).returncode == 0
    browser.open(page)
    assert browser.audit() == []
    text = browser.evaluate("document.querySelector('main').innerHTML")
    assert text.count("<figure>") >= 6 and text.count('role="img"') == text.count("<figure>")
    results = results_in(folder)
    for model in results["models"]:
        assert f"{model['mean']:.3f} ± {model['deviation']:.3f}" in text
    for title in ("Bits per byte against what was read", "Bits per byte against time", "by position in the context", "Validation accuracy by epoch"):
        assert title in text
    assert text.count('class="sample"') == 4 and results["runs"][0]["sample"]["prompt"].splitlines()[0] in text
    assert text.count("paired by seed") == 4 and text.count("by Welch") == 4


def test_results_that_lack_something_are_refused(full, tmp_path):
    folder, _ = full
    results = results_in(folder)
    damaged = tmp_path / "results.json"

    def expect_refusal(content):
        damaged.write_text(json.dumps(content))
        refused(run("report", damaged, "--out", tmp_path / "page.html"), "no results")

    expect_refusal({**results, "kind": "other"})
    expect_refusal({key: value for key, value in results.items() if key != "kind"})
    for part, keys in (("models", ("test_bits_per_byte", "tokens", "by_position")), ("comparisons", ("difference", "interval", "verdict")),
                       ("runs", ("epochs", "test"))):
        for key in keys:
            first = {name: value for name, value in results[part][0].items() if name != key}
            expect_refusal({**results, part: [first, *results[part][1:]]})


def test_paths_are_those_of_the_command(full, books):
    folder, _ = full
    assert {record["config"]["data"]["train"] for record in results_in(folder)["runs"]} == {str(books)}


def test_wrong_use(full, tmp_path, books, data):
    folder, _ = full
    refused(run("reproduce", "lm", "--out", tmp_path, data=data), "data.train", "lm")
    refused(run("reproduce", "lm", "--out", tmp_path, "--set", f"data.train={books}", "train.seed=3", data=data), "train.seed")
    refused(run("reproduce", "lm", "--out", tmp_path, "--set", "data.train=/nowhere/at/all", data=data), "/nowhere/at/all")
    refused(run("reproduce", "enwik8-lon", data=data), "unknown experiment", "nearest", "enwik8-long")
    refused(run("reproduce", "enwik8-long", "--budget", "full", "--only", "standard-longer", data=data), "standard-longer", "--only")
    refused(run("reproduce", "--check", folder / "results.json", "--out", tmp_path, "--run", "hkt-seed7", data=data), "nearest")
    # Other steps in the same folder would be another experiment.
    refused(run("reproduce", "lm", "--budget", "full", "--out", folder.parent, "--only", "hkt", "--set", f"data.train={books}",
                "data.pattern=*.txt", *TINY, "train.epochs=3", data=data), "another config")
