# SPDX-License-Identifier: Apache-2.0
"""hkt reproduce: experiments, their results, and published runs trained again."""
import json

import pytest
from program import TINY, refused, run

QUICK = [*TINY, "train.epochs=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def quick(tmp_path_factory, data):
    """The folder of a finished experiment, and what was printed."""
    folder = tmp_path_factory.mktemp("runs")
    process = run("reproduce", "listops", "--budget", "quick", "--device", "cpu", "--threads", 1, "--out", folder, "--set", *QUICK, data=data)
    assert process.returncode == 0, process.stderr
    return folder, process.stdout


def results_in(folder, name):
    return json.loads((folder / name / "results.json").read_text())


def test_it_compares(quick):
    folder, printed = quick
    for word in ("standard", "hkt", "gain", "attention", "McNemar", "λ of hkt, block 0"):
        assert word in printed
    results = results_in(folder, "listops-quick")
    assert [model["name"] for model in results["models"]] == ["standard", "hkt"]
    assert [run["name"] for run in results["runs"]] == ["standard-seed0", "hkt-seed0"]
    for model, record in zip(results["models"], results["runs"]):
        assert model["runs"] == [record["name"]]
        assert model["test_accuracy"] == [pytest.approx(100 * record["test"]["accuracy"])]
        assert record["config"]["train"]["seed"] == 0 and len(record["epochs"]) == 1 and record["test"]["predictions"]
    assert results["comparisons"][0]["gain"] == pytest.approx(results["models"][1]["mean"] - results["models"][0]["mean"])


def test_it_goes_on_where_it_stopped(quick, data):
    folder, _ = quick
    results = results_in(folder, "listops-quick")
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    assert len(stamps) == 2
    run("eval", folder / "listops-quick/hkt-seed0", "--split", "validation", data=data)  # then it is to be scored again
    again = run("reproduce", "listops", "--budget", "quick", "--out", folder, "--set", *QUICK, "--json", data=data)
    assert json.loads(again.stdout)[0]["models"][1]["test_accuracy"] == results["models"][1]["test_accuracy"]
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "a finished run was repeated"
    refused(run("reproduce", "listops", "--out", folder, "--set", *TINY, "train.epochs=2", data=data), "another config")


def test_the_full_budget_has_all_baselines_and_examines_them(tmp_path, data):
    few = ["data.train_samples=64", "data.min_tokens=30"]
    process = run("reproduce", "listops", "--budget", "full", "--out", tmp_path, "--set", *QUICK, *few, data=data)
    assert process.returncode == 0, process.stderr
    results = results_in(tmp_path, "listops-full")
    assert [model["name"] for model in results["models"]] == ["standard", "matched", "strong", "hkt", "hkt-rotary"]
    records = {record["name"]: record for record in results["runs"]}
    for model in results["models"]:
        assert len(model["test_accuracy"]) == 3
        first, *others = model["runs"]
        assert records[first]["theory"]["claims"] and records[first]["probes"]
        assert all("probes" not in records[name] for name in others)
        assert all(records[name]["theory"]["claims"] for name in others), "every seed is examined"
        assert "eigenvalues" in json.dumps(records[first]["theory"]) and "eigenvalues" not in json.dumps([records[name]["theory"] for name in others])
        assert all(sum(block) == pytest.approx(1, abs=1e-5) for block in model["level_shares"])
        if "candidates" in model:
            best = max(model["candidates"], key=lambda candidate: candidate["validation"])
            assert first == best["run"], "not the best on validation"
            chosen = {json.dumps(records[name]["config"]["train"]["learning_rate"]) for name in model["runs"]}
            assert len(chosen) == 1, "the seeds differ in more than the seed"
    unscored = [path for path in (tmp_path / "listops-full").glob("*learning_rate*/") if not (path / "predictions.safetensors").exists()]
    assert len(unscored) == 6, "a candidate that was not chosen has seen the test set"
    page = tmp_path / "report.html"
    assert run("report", tmp_path / "listops-full/results.json", "--out", page).returncode == 0
    assert "both with rotary positions and tuned" in page.read_text()

    # One that diverged is behind all others and stops nothing.
    loser = unscored[0] / "metrics.jsonl"
    loser.write_text("".join(loser.read_text().splitlines(True)[:-1]) + '{"event":"diverged","step":1,"what":"loss"}\n')
    process = run("reproduce", "listops", "--budget", "full", "--out", tmp_path, "--set", *QUICK, *few, data=data)
    assert process.returncode == 0, process.stderr
    again = results_in(tmp_path, "listops-full")
    candidates = {one["run"]: one["validation"] for model in again["models"] for one in model.get("candidates", [])}
    assert [name for name, validation in candidates.items() if validation is None] == [unscored[0].name]
    assert [model["runs"] for model in again["models"]] == [model["runs"] for model in results["models"]]


def test_widths_are_compared(tmp_path, data):
    widths = [change for change in QUICK if not change.startswith(("model.width", "model.feedforward", "model.heads"))]
    process = run("theory", "sweep-width", "--epochs", 1, "--out", tmp_path, "--set", *widths, "data.min_tokens=30", "data.train_samples=64", data=data)
    assert process.returncode == 0, process.stderr
    lines = [line.split() for line in process.stdout.splitlines()]
    shown = [int(line[0]) for line in lines if line and line[0].isdigit() and line[1] in ("before", "trained")]
    assert shown == [32, 32, 64, 64, 128, 128, 256, 256, 512, 512]
    page = tmp_path / "report.html"
    assert run("report", tmp_path / "listops-width-full", "--out", page).returncode == 0


def test_a_published_run_is_trained_again(quick, tmp_path, data):
    folder, _ = quick
    published = folder / "listops-quick/results.json"

    def checked(path):
        return run("reproduce", "--check", path, "--out", tmp_path, "--run", "hkt-seed0", "--device", "cpu", "--threads", 1, data=data)

    process = checked(published)
    assert process.returncode == 0, process.stderr
    assert "the predictions are bit-identical" in process.stdout and "one seed" in process.stdout
    # The same with seeds around it that it lies within, and far from it, beside predictions that are not its own.
    results = json.loads(published.read_text())
    own = results["models"][1]["test_accuracy"][0]
    for others, code, word in (([own - 1, own + 1], 0, "inside"), ([own + 40, own + 40.1], 1, "outside")):
        results["models"][1]["test_accuracy"] = others
        results["runs"][1]["test"]["predictions"] = results["runs"][0]["test"]["predictions"]
        changed = tmp_path / "results.json"
        changed.write_text(json.dumps(results))
        process = checked(changed)
        assert process.returncode == code and word in process.stdout, process.stdout + process.stderr
        assert "the predictions are not bit-identical" in process.stdout


def test_step_times_are_taken_again(quick, tmp_path, data):
    folder, _ = quick
    before = results_in(folder, "listops-quick")
    copy = tmp_path / "results.json"
    without = json.loads(json.dumps(before))
    for model in without["models"]:
        model["step_seconds"] = model["step_ratio"] = None
    copy.write_text(json.dumps(without))
    process = run("reproduce", "--times", copy, "--threads", 1, data=data)
    assert process.returncode == 0 and "ratio" in process.stdout, process.stderr
    after = json.loads(copy.read_text())
    assert after.pop("timed")["threads"] == 1
    assert after["models"][0]["step_ratio"] == 1 and after["models"][1]["step_ratio"] > 0
    for results in (before, after):
        for model in results["models"]:
            for key in ("step_seconds", "step_ratio", "attention_seconds", "attention_ratio"):
                assert model.pop(key) > 0
    assert after == before, "more than the times was changed"


def test_results_that_lack_something_are_refused(quick, tmp_path):
    folder, _ = quick
    results = json.loads((folder / "listops-quick/results.json").read_text())
    damaged = tmp_path / "results.json"

    def expect_refusal(content):
        damaged.write_text(json.dumps(content))
        refused(run("reproduce", "--check", damaged, "--run", "hkt-seed0", "--out", tmp_path), "no results")
        refused(run("report", damaged, "--out", tmp_path / "page.html"), "no results")

    expect_refusal([])
    for key in ("format", "experiment", "budget", "seeds", "where", "models", "comparisons", "runs"):
        expect_refusal({name: value for name, value in results.items() if name != key})
        expect_refusal({**results, key: None})
    expect_refusal({**results, "runs": []})
    for part in ("models", "runs"):
        needed = results[part][0].keys() & {"name", "what", "test_accuracy", "mean", "runs", "config", "test"}
        assert len(needed) >= 3
        for key in needed:
            expect_refusal({**results, part: [{name: value for name, value in results[part][0].items() if name != key}]})


def test_a_folder_of_experiments_is_reported(quick, tmp_path):
    folder, _ = quick
    process = run("report", folder, "--out", tmp_path / "page.html")
    assert process.returncode == 0 and "listops: HKT reaches" in process.stdout, process.stderr


def test_wrong_use(quick, tmp_path, data):
    folder, _ = quick
    published = folder / "listops-quick/results.json"
    refused(run("reproduce", "--check", published, data=data), "--run is missing", "hkt-seed0")
    refused(run("reproduce", "--check", published, "--run", "hkt-sed0", data=data), "nearest", "hkt-seed0")
    for none in (tmp_path / "none.json", tmp_path):
        refused(run("reproduce", "--check", none, "--run", "hkt-seed0"), f"{none} cannot be read")
    refused(run("reproduce", "listops", "--check", published, "--run", "hkt-seed0"), "takes no experiment")
    refused(run("reproduce", "listops", "--run", "hkt-seed0"), "--check")
    refused(run("reproduce", "listops", "--times", published), "takes no experiment")
    refused(run("reproduce", "--check", published, "--times", published), "cannot be combined")
    refused(run("reproduce", "--times", tmp_path / "none.json"), "none.json cannot be read")
    refused(run("reproduce", "all", "--only", "hkt"), "--only")
    refused(run("report", published, "--out", published), "not an HTML page")
    refused(run("reproduce", "listop"), "unknown experiment", "nearest", "listops")
    refused(run("reproduce"), "the experiment is missing", "hkt reproduce --help")
    refused(run("reproduce", "listops", "--only", "standrd"), "no model", "nearest", "standard")
    refused(run("reproduce", "listops", "--budget", "large"), "quick or full")
    refused(run("theory"), "folder is required", "run directory")
