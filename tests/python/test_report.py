# SPDX-License-Identifier: Apache-2.0
"""hkt report: one page that needs nothing else, opened in a browser where there is one."""
import json
import pathlib
import re
import shutil

import pytest
from browser import browser, needs_chromium, views  # noqa: F401
from program import refused, run, train_arguments

SMALL = ["data.min_tokens=40", "data.train_samples=64", "data.validation_samples=32", "data.test_samples=32", "train.epochs=2"]
root = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Standard attention and HKT, trained, scored and examined."""
    folder = tmp_path_factory.mktemp("runs")
    data = folder / "data"
    for name, levels in (("standard", 1), ("hkt", 3)):
        for arguments in (train_arguments(folder / name, *SMALL, f"model.levels={levels}"),
                          ["eval", folder / name, "--device", "cpu"], ["theory", folder / name, "--sequences", 2]):
            process = run(*arguments, data=data)
            assert process.returncode == 0, process.stderr
    return folder


@pytest.fixture(scope="module")
def page(runs):
    out = runs / "report.html"
    process = run("report", runs / "standard", runs / "hkt", "--out", out)
    assert process.returncode == 0, process.stderr
    assert str(out) in process.stdout
    return out


def data_of(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S).group(1)
    return json.loads(text)


def test_the_answer_comes_first_and_is_true(page, runs):
    data = data_of(page)
    scores = {}
    for entry in data["runs"]:
        lines = [json.loads(line) for line in (runs / entry["name"] / "metrics.jsonl").read_text().splitlines()]
        assert len(entry["epochs"]) == 2 and [p["epoch"] for p in entry["probes"]] == [0, 1, 2]
        assert entry["parameters"] == lines[0]["parameters"]
        scores[entry["name"]] = 100 * entry["test"]["accuracy"]
    gain = scores["hkt"] - scores["standard"]
    assert f"{abs(gain):.2f} points {'more' if gain >= 0 else 'less'}" in data["answers"][0]
    assert f"{scores['hkt']:.2f} % on test" in data["answers"][0]


def test_nothing_comes_from_elsewhere(page):
    text = page.read_text()
    assert not re.search(r'<(script|link|img)[^>]+(src|href)=', text)


BAD_PAGE = """<!doctype html><html lang="en" data-ready="yes"><main><h1>A</h1><h3>skips</h3>
<p style="color: #bbb; background: #fff">pale</p><p style="width: 3000px">wide</p><div role="img" aria-label="short"></div>
<div class="plot" role="img" aria-label="a plot that nothing was ever drawn in"></div><table><tr><td>1</td></tr></table><p>NaN</p>
<script>console.error('told')</script></main></html>"""


@needs_chromium
def test_what_is_wrong_with_a_page_is_seen(tmp_path, browser):  # noqa: F811
    (tmp_path / "bad.html").write_text(BAD_PAGE)
    browser.open(tmp_path / "bad.html", 390)
    troubles = " | ".join(browser.audit())
    for words in ("told", "skips a level", "“pale” has a contrast", "“wide” reaches", "described by “short”", "not drawn", "no headers", "the text has “NaN”"):
        assert words in troubles


@needs_chromium
@views
def test_the_page_is_good_to_look_at(page, browser, width, dark):  # noqa: F811
    browser.open(page, width, dark)
    assert browser.audit() == []
    assert browser.evaluate("document.querySelectorAll('.plot').length") >= 8


@needs_chromium
def test_plots_follow_day_and_night(page, browser):  # noqa: F811
    colors = {}
    browser.open(page, dark=False)
    for name in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
        colors[name] = browser.evaluate("""(async () => {
            const place = [...document.querySelectorAll('.plot')].find(one => one.checkVisibility());
            place.scrollIntoView();
            await new Promise(done => setTimeout(done, 300));
            return [place.layout.font.color, getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()];
        })()""")
        assert colors[name][0] == colors[name][1]
    assert colors["light"] != colors["dark"]


def test_what_the_page_keeps_of_the_theory_is_what_was_found(page, runs):
    for shown in data_of(page)["runs"]:
        found = json.loads((runs / shown["name"] / "theory.json").read_text())
        assert shown["theory"]["claims"] == found["claims"]
        pairs = [pair for own, full in zip(shown["theory"]["blocks"], found["blocks"], strict=True) for pair in zip(own["heads"], full["heads"], strict=True)]
        for head, whole in pairs:
            assert [depth["kl"] for depth in head["depth"]] == pytest.approx([depth["kl"] for depth in whole["depth"]], rel=1e-5)
            for level, full in zip(head["levels"], whole["levels"], strict=True):
                assert [level[key] for key in ("weight", "share")] == pytest.approx([full[key] for key in ("weight", "share")], rel=1e-5)
                for key in ("kurtosis_ratio", "kurtosis_p", "skewness_p"):
                    value, expected = ((one["normality"] or {}).get(key) for one in (level, full))
                    assert value is expected is None or value == pytest.approx(expected, rel=1e-5)


def test_a_page_about_runs_is_small(page):
    assert page.stat().st_size < 2_000_000


@needs_chromium
def test_own_data_begins_with_classes_confusions_and_mistakes(page, runs, browser):  # noqa: F811
    browser.open(page)
    titles = browser.evaluate("[...document.querySelectorAll('main h2, main > .grid h3')].map(node => node.textContent)")
    best = max(("standard", "hkt"), key=lambda name: json.loads((runs / name / "score.json").read_text())["accuracy"])
    assert titles[:5] == ["The runs", f"{best} on test", "Accuracy by class", "Confusions", "Calibration, " + best]
    assert titles.index("The worst mistakes") < titles.index("Training") < titles.index("The paper’s claims")
    score = json.loads((runs / best / "score.json").read_text())
    cells = browser.evaluate("[...document.querySelectorAll('.card')[1].querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent))")
    names = [row["label"] for row in score["labels"]]
    assert cells == [[label, *(str(score["confusion"].get(label, {}).get(name, 0)) for name in names)] for label in names]
    said = browser.evaluate("document.querySelector('main').innerText")
    assert score["mistakes"][0]["text"] in said and f"{score['correct']} of {score['sequences']} are right" in said


@needs_chromium
def test_what_differs_between_runs_stands_in_the_table(runs, browser, tmp_path):  # noqa: F811
    for rate in ("1e-3", "2e-3"):
        process = run(*train_arguments(tmp_path / f"rate-{rate}", *SMALL, "train.epochs=1", f"train.learning_rate={rate}"), data=runs / "data")
        assert process.returncode == 0, process.stderr
    process = run("report", tmp_path / "rate-1e-3", tmp_path / "rate-2e-3", "--out", tmp_path / "page.html")
    assert process.returncode == 0, process.stderr
    browser.open(tmp_path / "page.html", 390)
    rows = browser.evaluate("[...document.querySelector('table').rows].map(row => [...row.cells].map(cell => cell.textContent))")
    assert [row[rows[0].index("learning rate")] for row in rows[1:]] == ["0.001", "0.002"]
    assert rows[0][:3] == ["run", "validation", "learning rate"], "a phone shows these"
    assert browser.audit() == []


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_about_experiments_is_good_to_look_at(browser, tmp_path, width):  # noqa: F811
    names = ["imdb-full", "listops-ablation-full", "lm-quick"]
    process = run("report", *(root / "results" / f"{name}.json" for name in names), "--out", tmp_path / "page.html")
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "page.html").stat().st_size < 2_100_000
    browser.open(tmp_path / "page.html", width)
    assert browser.evaluate("[...document.querySelectorAll('.plot')].filter(place => place.checkVisibility()).length") <= 8, "the rest is folded away"
    first = browser.evaluate("[...document.querySelectorAll('main > h2')].slice(0, 3).map(node => node.textContent)")
    assert first == ["HKT against standard attention", "The paper’s claims", "Results"]
    assert "IMDB: HKT, rotary, seed 0" in browser.evaluate("document.querySelector('main').innerText")
    assert browser.audit() == []


@needs_chromium
def test_an_exported_model_has_no_empty_plots(browser, tmp_path):  # noqa: F811
    process = run("report", root / "models" / "imdb-hkt", "--out", tmp_path / "page.html")
    assert process.returncode == 0, process.stderr
    assert "imdb-hkt is an exported model (HKT, 3 levels" in process.stdout
    entry = data_of(tmp_path / "page.html")["runs"][0]
    assert entry["exported"] and entry["parameters"] > 300_000
    browser.open(tmp_path / "page.html", 390)
    assert browser.evaluate("document.querySelectorAll('.plot').length") == 0
    assert f"{entry['parameters']:,}" in browser.evaluate("document.querySelector('table').textContent")
    assert browser.audit() == []


def test_what_is_no_experiment_is_skipped_and_named(tmp_path):
    paths = [root / "results" / name for name in ("limits.json", "listops-quick.json", "bench-cpu.json")]
    process = run("report", *paths, "--out", tmp_path / "page.html")
    assert process.returncode == 0
    lines = process.stderr.splitlines()
    assert len(lines) == 2 and "limits.json contains no results" in lines[0] and "bench-cpu.json" in lines[1] and lines[1].endswith("It is left out.")
    assert [one["experiment"] for one in data_of(tmp_path / "page.html")["comparisons"]] == ["listops"]
    refused(run("report", paths[0], "--out", tmp_path / "none.html"), "no results")
    refused(run("report", paths[0], paths[2], "--out", tmp_path / "none.html"), "no results")
    refused(run("report", paths[1], tmp_path / "mistyped", "--out", tmp_path / "none.html"), "mistyped")


def test_a_score_of_another_model_or_a_damaged_one_is_left_out(runs, tmp_path):
    def reported():
        process = run("report", tmp_path / "hkt", "--out", tmp_path / "page.html")
        assert process.returncode == 0, process.stderr
        return data_of(tmp_path / "page.html")["runs"][0], process.stderr

    shutil.copytree(runs / "hkt", tmp_path / "hkt")
    path = tmp_path / "hkt" / "score.json"
    score = json.loads(path.read_text())
    entry, said = reported()
    assert entry["score"] == score and not said
    path.write_text(json.dumps({**score, "model": "crc32:00000000"}))
    assert "score" not in reported()[0]
    for damaged in ("{", json.dumps({**score, "labels": 3}), json.dumps({**score, "mistakes": [{"label": 1}]})):
        path.write_text(damaged)
        entry, said = reported()
        assert "score" not in entry and "score.json is not valid output of hkt eval" in said


def test_labels_and_folders_may_hold_anything(runs, tmp_path):
    odd = tmp_path / "</script><b>"
    shutil.copytree(runs / "hkt", odd)
    process = run("report", odd, "--out", tmp_path / "odd.html")
    assert process.returncode == 0, process.stderr
    assert data_of(tmp_path / "odd.html")["runs"][0]["folder"] == str(odd)


def test_bad_input_is_refused(tmp_path, runs):
    refused(run("report", tmp_path), "contains no run")
    refused(run("report", runs / "hkt", "--out", tmp_path / "no" / "where.html"), "where.html", "is not a folder")
    refused(run("report", runs / "hkt", "--out", tmp_path), "not a regular file")
    damaged = tmp_path / "damaged"
    shutil.copytree(runs / "hkt", damaged)
    (damaged / "theory.json").write_text("{")
    process = run("report", damaged, "--out", tmp_path / "d.html")
    assert process.returncode == 0 and "theory.json is not valid output of hkt theory" in process.stderr
