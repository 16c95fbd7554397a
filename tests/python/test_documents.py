# SPDX-License-Identifier: Apache-2.0
# Figures in the documents are those of results/.
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_those_of_the_results():
    subprocess.run([sys.executable, root / "scripts" / "update-tables", "--check"], check=True)


def tracked():
    names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True).stdout.split()
    return [name for name in names if (root / name).is_file()]


def test_every_source_names_its_licence():
    """The SPDX line is among the first two; a file without git, such as one of a source archive, has nothing to list."""
    sources = [name for name in tracked() if pathlib.Path(name).suffix in {".cpp", ".h", ".cu", ".js", ".py", ".sh", ".cmake", ".html"}
               or name.startswith("scripts/") or name.endswith("CMakeLists.txt")]
    without = [name for name in sources if not any("SPDX-License-Identifier: Apache-2.0" in line
                                                   for line in (root / name).read_text().splitlines()[:2])]
    assert (sources or not (root / ".git").exists()) and without == []


def test_the_version_is_the_same_everywhere():
    version = re.search(r"project\(hkt VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
    assert f"version: {version}" in (root / "CITATION.cff").read_text()
    assert f"## [{version}]" in (root / "CHANGELOG.md").read_text()
