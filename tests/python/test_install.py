# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` and `make package` install runs from where it lies, after it has been moved."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

models = Path(__file__).resolve().parents[2] / "models"


def call(*command, **options):
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def run_paths(file):
    found = re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", call("readelf", "-d", file))
    return found[1].split(":") if found else []


def libraries(program):
    """Those that the system's loader finds, by name."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    lines = [line.split(" => ") for line in call("ldd", program, env=environment).splitlines() if " => " in line]
    return {name.strip(): Path(where.split(" (")[0]) for name, where in lines}


def answers(program):
    return call(program, "predict", models / "imdb-hkt", "--device", "cpu", stdin=open(models / "reviews.txt"))


@pytest.fixture
def installed(build_folder, tmp_path):
    def install(*options):
        call("cmake", "--install", build_folder, "--prefix", tmp_path / "first", *options)
        return (tmp_path / "first").rename(tmp_path / "moved")
    return install


def test_the_program_is_installed_beside_its_libraries(installed, build_folder):
    program = installed() / "bin" / "hkt"
    assert libraries(program)["libhkt_operators.so.0"].resolve().is_relative_to(program.parents[1])
    assert run_paths(program)[0].startswith("$ORIGIN/../lib")
    assert answers(program) == answers(build_folder / "hkt")


def test_the_package_needs_no_torch_and_names_no_folder_of_this_machine(installed, build_folder):
    if json.loads(call(build_folder / "hkt", "info", "--json"))["cuda_reason"] != "this build has no CUDA support":
        pytest.skip("the package is for CPUs, and this build has CUDA kernels")
    folder = installed("--component", "program")
    found = libraries(folder / "bin" / "hkt")
    assert "libtorch_cpu.so" in found
    for name, where in found.items():
        assert where.resolve().is_relative_to(folder) or str(where).startswith(("/lib/", "/usr/lib/")), name
    assert run_paths(folder / "bin" / "hkt") == ["$ORIGIN/../lib/hkt"]
    for library in (folder / "lib" / "hkt").glob("libhkt*"):
        assert run_paths(library) == ["$ORIGIN"]
    assert {path.name for path in folder.iterdir()} == {"bin", "lib", "share"} and list((folder / "share" / "doc" / "hkt" / "torch").iterdir())
    assert answers(folder / "bin" / "hkt") == answers(build_folder / "hkt")
