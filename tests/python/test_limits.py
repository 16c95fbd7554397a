# SPDX-License-Identifier: Apache-2.0
# scripts/check-limits: passes as published, and fails for whatever would make a limit mean nothing.
import json
import pathlib
import shutil
import subprocess
import sys

import pytest

root = pathlib.Path(__file__).resolve().parents[2]


class Copy:
    """Figures and limits as published, to be changed."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("scripts/check-limits", "results/limits.json"):
            self.take(name)
        for limit in self.limits():
            if (root / "results" / limit["file"]).exists():
                self.take(f"results/{limit['file']}")

    def take(self, name):
        (self.folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, self.folder / name)

    def limits(self):
        return json.loads((self.folder / "results/limits.json").read_text())["limits"]

    def change(self, name, change):
        path = self.folder / "results" / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    def change_limit(self, index, **members):
        self.change("limits.json", lambda content: content["limits"][index].update(members))

    def check(self, *arguments):
        return subprocess.run([sys.executable, self.folder / "scripts/check-limits", *arguments], capture_output=True, text=True)

    def git(self, *arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", "-C", self.folder, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def first_table(results):
    """The rows of hkt::attention's shapes, and the column of the ratio that is promised."""
    table = results["tables"][0]
    return table["rows"], table["columns"].index("to cuDNN")


def violated(process, *words):
    """One line about one limit, which holds these words."""
    lines = process.stderr.splitlines()
    assert process.returncode == 1 and len(lines) == 1, process.stderr
    for word in ("check-limits: ", *words):
        assert word in lines[0], f"{word!r} is not in: {lines[0]}"


def test_the_published_figures_keep_what_was_accepted():
    process = subprocess.run([sys.executable, root / "scripts/check-limits"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "not measured" in process.stdout and len(process.stdout.splitlines()) > 20


def test_accepted_figures_are_the_worst_of_today(copy):
    before = copy.limits()
    assert copy.check("--update").returncode == 0
    assert copy.limits() == before, "run scripts/check-limits --update"


def test_a_worsened_figure_fails_and_is_not_accepted(copy):
    def worsen(results):
        rows, ratio = first_table(results)
        row = next(row for row in rows if row[:3] == ["4, 16, 4096, 64", "causal", "forward"])
        row[ratio] = "1.195"

    copy.change("bench-cuda.json", worsen)
    before = copy.limits()
    for arguments in ([], ["--update"]):
        violated(copy.check(*arguments), "forward, T ≥ 4k, D 64 and 128", "1.195 exceeds the accepted 1.19")
    assert copy.limits() == before


def test_a_better_figure_is_accepted_and_then_kept(copy):
    def improve(results):
        rows, ratio = first_table(results)
        for row in rows:
            if row[0].endswith(", 32") and row[2] == "forward":
                row[ratio] = "0.801"

    copy.change("bench-cuda.json", improve)
    index = next(i for i, limit in enumerate(copy.limits()) if limit["what"].endswith("forward, D = 32"))
    assert copy.check().returncode == 0 and copy.limits()[index]["accepted"] == 0.97
    assert copy.check("--update").returncode == 0 and copy.limits()[index]["accepted"] == 0.81
    copy.take("results/bench-cuda.json")
    violated(copy.check(), "forward, D = 32", "0.961 exceeds the accepted 0.81")


@pytest.mark.parametrize("rows", [{"pass": "forwards"}, {"pass": "forward", "T": {"from": 10**6}}])
def test_a_filter_that_matches_nothing_fails(copy, rows):
    copy.change_limit(0, rows=rows)
    violated(copy.check(), "0 figures of bench-cuda.json match, 8 did before")


def test_rows_that_are_gone_fail(copy):
    def drop(results):
        results["tables"][0]["rows"] = [row for row in results["tables"][0]["rows"] if row[0] != "1, 16, 16384, 32"]

    copy.change("bench-cuda.json", drop)
    process = copy.check()
    assert process.returncode == 1
    assert "6 figures of bench-cuda.json match, 8 did before" in process.stderr.splitlines()[0]


def test_a_renamed_column_a_renamed_table_and_a_missing_file_fail(copy):
    copy.change_limit(0, ratio=["to cuDNN 9"])
    violated(copy.check(), 'has 0 columns "to cuDNN 9"')
    copy.change_limit(0, ratio=["to cuDNN"], rows={"width": 64})
    violated(copy.check(), 'no column "width"')
    copy.take("results/limits.json")
    copy.change_limit(0, table="hkt::attention")
    violated(copy.check(), "tables of bench-cuda.json begin with")
    copy.take("results/limits.json")
    (copy.folder / "results/bench-cuda-sm80.json").unlink()
    violated(copy.check(), "0 figures of bench-cuda-sm80.json match")


@pytest.mark.parametrize("cell", ["–", "nan", "inf"])
def test_what_is_no_figure_fails(copy, cell):
    def spoil(results):
        rows, ratio = first_table(results)
        rows[0][ratio] = cell

    copy.change("bench-cuda.json", spoil)
    violated(copy.check(), f'the figure "{cell}" is not a number')


def test_what_is_measured_must_be_accepted(copy):
    copy.change_limit(0, accepted=None, figures=0)
    violated(copy.check(), "1.183 is measured and nothing accepted")
    assert copy.check("--update").returncode == 0 and copy.limits()[0]["accepted"] == 1.19


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git here")
@pytest.mark.parametrize("accepted", [2.0, None])
def test_a_raised_limit_fails(copy, accepted):
    copy.git("init", "-q")
    copy.git("add", ".")
    copy.git("commit", "-q", "-m", "accepted")
    assert copy.check().returncode == 0
    copy.change_limit(0, accepted=accepted)
    violated(copy.check(), "1.19 was accepted before", "only ever fall")
    copy.git("commit", "-q", "-a", "-m", "raised")
    violated(copy.check(), "1.19 was accepted before", "only ever fall")


def test_wrong_use(copy):
    process = copy.check("--raise")
    assert process.returncode == 2 and "--update" in process.stderr
