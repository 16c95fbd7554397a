# Figures in the documents are those of results/.
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_those_of_the_results():
    subprocess.run([sys.executable, root / "scripts" / "update-tables", "--check"], check=True)
