# SPDX-License-Identifier: Apache-2.0
"""The examples run, and what they claim is so. examples/ddp.py: see test_package_distributed.py."""
import os
import re
import runpy
import subprocess
import sys

import nbclient
import nbformat
import pytest
import torch
from program import environment, run
from test_readme import root

examples = root / "examples"


def output_of(*arguments, folder):
    process = subprocess.run([sys.executable, *map(str, arguments)], cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_the_encoder_needs_coarse_levels(tmp_path):
    lines = output_of(examples / "encoder.py", folder=tmp_path).splitlines()
    accuracy = {int(levels): float(percent) for levels, percent in (re.match(r"(\d) levels: ([0-9.]+) %", line).groups() for line in lines)}
    assert accuracy[1] < 60 and accuracy[3] > 95


def test_the_small_gpt_learns_and_writes(tmp_path):
    """That decoding with caches is decoding without them, the example checks itself."""
    output = output_of(examples / "gpt.py", folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^step \d+: ([0-9.]+) nats a byte$", output, re.M)]
    assert losses[0] > 5 and losses[-1] < 2
    assert "    def __init__(self" in output


def test_compiled_is_eager(tmp_path, monkeypatch, capsys):
    """With a backend that compiles no C++, which would take most of a minute."""
    compiler = torch.compile
    monkeypatch.setattr(torch, "compile", lambda *arguments, **options: compiler(*arguments, **options, backend="aot_eager"))
    torch.compiler.reset()
    runpy.run_path(str(examples / "compiled.py"), run_name="__main__")
    assert capsys.readouterr().out.count("the loss and the gradients of the eager model") == 3


def test_hugging_face(tmp_path):
    assert output_of(examples / "hugging_face.py", folder=tmp_path)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The notebook, executed with few steps, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(examples / "quickstart.ipynb", as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUICKSTART_STEPS", "24")
        nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook, folder


def test_the_notebook_learns_and_draws(notebook):
    outputs = [output for cell in notebook[0].cells for output in cell.get("outputs", [])]
    text = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert float(re.search(r"([0-9.]+) bits per byte on", text)[1]) < 6
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2


def test_the_program_reads_what_the_notebook_wrote(notebook):
    process = run("generate", notebook[1] / "quickstart", "--prompt", "def ", "--tokens", 10, "--device", "cpu")
    assert process.returncode == 0 and len(process.stdout) > 4, process.stderr


def test_the_notebook_is_stored_without_outputs():
    cells = nbformat.read(examples / "quickstart.ipynb", as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert os.path.getsize(examples / "quickstart.ipynb") < 50_000
