# SPDX-License-Identifier: Apache-2.0
# What README.md shows runs as it stands: Python, C++, the program's commands and options, links.
import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("document, code", [(name, code) for name in ("README.md", "models/README.md") for code in blocks(name, "python")])
def test_python_runs_as_it_stands(document, code, folder):
    run([sys.executable, "-c", code], folder)


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
