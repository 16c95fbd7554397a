# SPDX-License-Identifier: Apache-2.0
"""What the Python package says of itself is so: types, docstrings and their examples, the blocks of docs/python.md."""
import doctest
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_readme import blocks, folder, root, run  # noqa: F401, folder is a fixture

import hkt

sources = [path for place in hkt.__path__ for path in Path(place).glob("*.py")]
modules = sorted(f"hkt.{path.stem}" for path in sources if path.stem not in ("__init__", "__main__"))
public = ["hkt", "hkt.cache", "hkt.hf", "hkt.nn"]
unsaid = {"forward", "extra_repr", "reset_parameters"}  # methods that mean in every nn.Module what they mean here


def names_of(module):
    return {name: getattr(module, name) for name in module.__all__}


def test_types(build_folder):
    """The package, and the examples as far as torch has types: backward(), of its older versions, and calls of modules have none."""
    examples = [path for path in sorted((root / "examples").glob("*.py")) if path.name != "hugging_face.py"]  # generate() refuses its own model
    assert len(examples) > 3
    process = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", build_folder / "mypy", root / "python" / "hkt", *examples],
                             cwd=root, capture_output=True, text=True, timeout=500, env=os.environ | {"MYPYPATH": str(root / "python")})
    assert process.returncode in (0, 1), process.stdout + process.stderr
    lacks_types = re.compile(r"examples/.*\[(no-untyped-call|no-any-return)\]$|Found \d+ errors? in|Success: ")
    assert [line for line in process.stdout.splitlines() if not lacks_types.match(line)] == []


@pytest.mark.parametrize("name", public)
def test_every_public_name_has_a_docstring_and_hints(name):
    module = importlib.import_module(name)
    assert inspect.getdoc(module)
    for name, thing in names_of(module).items():
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        assert thing.__doc__, name
        own = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
        for part, function in own:
            function = getattr(function, "fget", None) or getattr(function, "__func__", function)  # of a property, a class method
            if part.startswith("_") or not inspect.isfunction(function):
                continue
            assert part in unsaid or inspect.getdoc(getattr(thing, part) if part else thing), f"{name}.{part}"
            signature = inspect.signature(function)
            hints = [parameter.annotation for parameter in signature.parameters.values() if parameter.name not in ("self", "cls")]
            assert inspect.Signature.empty not in (*hints, signature.return_annotation), f"{name}.{part}"


def test_public_names_are_sorted_and_there():
    for name in public:
        module = importlib.import_module(name)
        assert list(module.__all__) == sorted(module.__all__) and names_of(module)


@pytest.mark.parametrize("name", modules)
def test_examples_of_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    module, known = importlib.import_module(name), {"hkt": hkt, "torch": torch, "folder": tmp_path / "run"}
    for place in (hkt.nn, hkt.cache):
        known |= names_of(place)
    known |= {"ModelConfig": hkt.config.ModelConfig, "level_rows": hkt.level_rows}
    results = doctest.testmod(module, extraglobs=known)
    assert results.failed == 0


def test_docstrings_have_examples():
    with_examples = {test.name for name in modules for test in doctest.DocTestFinder().find(importlib.import_module(name)) if test.examples}
    for name in ("attention", "attention_extend", "downsample", "level_rows"):
        assert f"hkt._operators.{name}" in with_examples
    for name in ("nn.HierarchicalAttention", "nn.Downsample", "nn.Classifier", "nn.LanguageModel", "cache.AttentionState", "cache.DecodingState",
                 "config.ModelConfig", "io.load", "io.save"):
        assert f"hkt.{name}" in with_examples


def test_what_was_built_is_said():
    process = subprocess.run([sys.executable, "-m", "hkt", "--json"], capture_output=True, text=True, timeout=100)
    facts = json.loads(process.stdout)
    assert facts["version"] == hkt.__version__ and facts["library"] == str(hkt.library)
    assert facts["torch"] == torch.__version__.split("+")[0] and facts["cuda_reason"]
    text = subprocess.run([sys.executable, "-m", "hkt"], capture_output=True, text=True, timeout=100).stdout
    assert text.startswith(f"hkt {hkt.__version__}, torch {facts['torch']}\n") and facts["cuda_reason"] in text


def test_python_of_the_document_runs_as_it_stands(folder):  # noqa: F811
    """Its blocks in their order, after the commands that make what they read."""
    for line in "".join(blocks("docs/python.md", "sh")).splitlines():
        if line.startswith("build/hkt "):
            run(["sh", "-c", line], folder)
    snippets = blocks("docs/python.md", "python")
    assert snippets
    run([sys.executable, "-c", "".join(snippets)], folder)


def rows_of_tables():
    return re.findall(r"^\| (.*?) \| (.*?) \|$", (root / "docs" / "python.md").read_text(), re.M)


def test_the_document_names_what_there_is():
    for left, _ in rows_of_tables():
        for name in re.findall(r"`(hkt(?:\.\w+)+)`", left):
            place, _, last = name.rpartition(".")
            module = importlib.import_module(place)
            assert hasattr(module, last) or importlib.import_module(name), name
        for name in re.findall(r"`(\w+\.(?:py|ipynb))`", left):
            assert (root / "examples" / name).exists(), name


def test_layers_that_it_compares_exist():
    """The right column of "Coming from elsewhere", as far as it is an expression of a layer or a model."""
    names = {"hkt": hkt, "torch": torch, "ModelConfig": hkt.config.ModelConfig, "heads": 2}
    pattern = r"`(hkt\.nn\.(?:LanguageModel|HierarchicalAttention)\([^`]*\))`"
    expressions = {code for _, right in rows_of_tables() for code in re.findall(pattern, right)}
    assert len(expressions) == 2
    for code in expressions:
        assert sum(parameter.numel() for parameter in eval(code, names).parameters()) > 0


def test_attention_of_one_level_is_scaled_dot_product_attention():
    """What the same table says of F.scaled_dot_product_attention and of nn.MultiheadAttention."""
    heads, (q, k, v) = 4, torch.randn(3, 2, 4, 9, 8)
    out = hkt.attention([q], [k], v, torch.ones(heads, 1), causal=True)[0]
    torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    theirs, x = torch.nn.MultiheadAttention(32, 4, batch_first=True, bias=False), torch.randn(2, 9, 32)
    mine = hkt.nn.HierarchicalAttention(32, heads=4, levels=1)
    weight = torch.cat([mine.query_key.weight, mine.value.weight])
    theirs.load_state_dict({"in_proj_weight": weight, "out_proj.weight": mine.output.weight})
    padding = torch.arange(9) >= torch.tensor([[9], [5]])
    expected = theirs(x, x, x, key_padding_mask=padding, need_weights=False)[0].masked_fill(padding[:, :, None], 0)
    torch.testing.assert_close(mine(x, key_padding_mask=padding), expected)
