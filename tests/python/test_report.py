# SPDX-License-Identifier: Apache-2.0
"""hkt report: one page that needs nothing else, opened in a browser where there is one."""
import json
import re
import shutil
import subprocess

import pytest
from program import refused, run, train_arguments

SMALL = ["data.min_tokens=40", "data.train_samples=64", "data.validation_samples=32", "data.test_samples=32", "train.epochs=2"]
chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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


def opened(page, width, profile):
    """What the browser made of the page, its scripts left out; nothing may have been said on its console."""
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},2000", "--virtual-time-budget=15000",
               "--enable-logging=stderr", "--v=0", f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in process.stderr, process.stderr
    assert 'data-ready="yes"' in process.stdout
    return re.sub(r"<script.*?</script>", "", process.stdout, flags=re.S)


@pytest.mark.skipif(not chromium, reason="there is no browser here")
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page_opens_and_all_plots_draw(page, width, tmp_path):
    text = opened(page, width, tmp_path)
    figures = text.count("<figure>")
    assert figures >= 15 and text.count('role="img"') == figures
    assert len(re.findall(r'class="main-svg"', text)) >= figures
    assert len(re.findall(r'aria-label="[^"]{20,}"', text)) >= figures
    assert "NaN" not in text


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
