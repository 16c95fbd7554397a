# SPDX-License-Identifier: Apache-2.0
# What README.md shows runs as it stands: Python, C++, the program's commands and options, links.
import functools
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import hkt
import pytest
import torch
from conftest import build
from program import environment

root = Path(__file__).resolve().parents[2]


def blocks(document, language):
    """The fenced blocks of a document in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (root / document).read_text(), re.M | re.S)


def commands():
    """Each call of build/hkt in README's shell blocks, as its words; comments, quoted texts and redirections are left out."""
    lines = "".join(blocks("README.md", "sh")).splitlines()
    calls = [re.sub(r'\s#.*|"[^"]*"|<.*', "", line.partition("build/hkt ")[2]).split() for line in lines if "build/hkt " in line]
    return [call for call in calls if call]


@pytest.fixture
def folder(tmp_path):
    """An empty folder that looks like the repository's to what README shows."""
    (tmp_path / "build").symlink_to(build)
    (tmp_path / "models").symlink_to(root / "models")
    return tmp_path


def finished(process):
    assert process.returncode == 0, process.stdout + process.stderr
    return process


def run(arguments, folder):
    return finished(subprocess.run(list(map(str, arguments)), cwd=folder, env=environment(), capture_output=True, text=True, timeout=300))


# What README's first block computes, in plain PyTorch and O(T²) memory.
definition = """
def up(scores, level):
    return scores.repeat_interleave(2**level, -2).repeat_interleave(2**level, -1)[..., :T, :T]

scores = sum(weights[:, l, None, None] * up(q[l] @ k[l].mT, l) for l in range(L)) / D**0.5
scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
torch.testing.assert_close(out, scores.softmax(-1) @ v)
torch.testing.assert_close(lse, scores.logsumexp(-1))
"""


def test_python_runs_as_it_stands(folder):
    package, operators, decoding, _ = blocks("README.md", "python")  # each goes on where the one before ends
    written = run([sys.executable, "-c", package + operators + decoding + definition], folder).stdout
    assert written.startswith("b'The history of ")


def test_signatures_are_those_of_the_operators():
    signature = blocks("README.md", "python")[-1]
    shown = re.findall(r"^(\w+)\((.*?)\)", signature, re.M)
    assert len(shown) == 4
    for name, arguments in shown:
        operator = getattr(torch.ops.hkt, name).default._schema.arguments
        assert arguments == ", ".join(f"{a.name}={a.default_value}" if a.has_default_value() else a.name for a in operator)
        function = inspect.signature(getattr(hkt, name)).parameters.values()
        assert arguments == ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default}" for p in function)


@pytest.mark.parametrize("code", blocks("models/README.md", "python"))
def test_python_of_the_models_runs_as_it_stands(code, folder):
    run([sys.executable, "-c", code], folder)


def quick_lines():
    """README's lines that need neither data nor a trained run."""
    lines = "".join(blocks("README.md", "sh")).splitlines()
    return [line for line in lines if re.search(r"build/hkt (info|data list)|models/", line) and "export" not in line]


def test_some_lines_are_quick():
    assert len(quick_lines()) == 5


@pytest.mark.parametrize("line", quick_lines())
def test_shell_runs_as_it_stands(line, folder):
    assert run(["sh", "-c", line], folder).stdout


def compile_and_link(source, program):
    """As an outside project would, without CMake: the flags are those of cmake/LibTorch.cmake."""
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    nvidia = sorted((torch.parent / "nvidia").glob("*/lib"))
    headers = [f"-isystem{torch / path}" for path in ("include", "include/torch/csrc/api/include")]
    libraries = [torch / "lib" / name for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1")]
    found_at = [f"-Wl,-rpath,{path}" for path in (build, torch / "lib", *nvidia)]
    return [os.environ.get("CXX", "c++"), "-std=c++20", "-DFMT_HEADER_ONLY", "-fopenmp", f"-I{root / 'include'}", *headers, source, "-o", program,
            build / "libhkt.so", *libraries, *found_at, "-Wl,--disable-new-dtags", "-Wl,--allow-shlib-undefined"]


def test_cpp_runs_as_it_stands(folder):
    code, = blocks("README.md", "cpp")  # one: a compilation takes half a minute
    (folder / "readme.cpp").write_text(code)
    run(compile_and_link("readme.cpp", "readme"), folder)
    assert run(["./readme"], folder).stdout.startswith("loss ")


@functools.cache
def help_of(*names):
    process = subprocess.run([str(build / "hkt"), *names, "--help"], capture_output=True, text=True, timeout=60)
    return finished(process).stdout


def subcommands(page):
    section = page.partition("Subcommands:\n")[2].partition("\n\n")[0]
    return re.findall(r"^  (\S+)", section, re.M)


def test_some_commands_are_shown():
    assert len(commands()) > 10 and {call[0] for call in commands()} <= set(subcommands(help_of()))


@pytest.mark.parametrize("call", commands(), ids=" ".join)
def test_commands_and_options_exist(call):
    names = [call[0]]
    if len(call) > 1 and call[1] in subcommands(help_of(*names)):
        names.append(call[1])
    known = re.findall(r"--[\w-]+", help_of(*names))
    assert [word for word in call if word.startswith("--") and word not in known] == []


def test_targets_of_make_exist():
    phony = re.search(r"^\.PHONY:(.*)$", (root / "Makefile").read_text(), re.M)[1].split()
    shown = re.findall(r"\bmake (?:\w+=\w+ )*([a-z-]+)", "".join(blocks("README.md", "sh")))
    shown += re.findall(r"`make (?:\w+=\w+ )*([a-z-]+)`", (root / "README.md").read_text())
    assert len(shown) > 2 and set(shown) <= set(phony)


def test_links_lead_somewhere():
    text = (root / "README.md").read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert links and [link for link in links if not (root / link).exists()] == []
