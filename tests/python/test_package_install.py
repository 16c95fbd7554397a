# SPDX-License-Identifier: Apache-2.0
"""What pip does with this source where something is missing, and what `import hkt` says where the operators do not fit. The ways
that succeed compile for minutes; scripts/test-install has them."""
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

source = Path(__file__).parents[2]
if os.environ.get("HKT_INSTALLED"):
    pytest.skip("tests of the source", allow_module_level=True)


def run(*command, **environment):
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=variables, timeout=300)


def call_backend(hook, **environment):
    """What a hook of the backend returns, in a process of its own, as pip calls it."""
    code = f"import sys, json; sys.path.insert(0, 'python/backend'); import hkt_backend; print(json.dumps({hook}))"
    variables = {**os.environ, "HKT_CUDA": "", "CUDA_HOME": "", "CUDACXX": "", **environment}
    return subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, env=variables, timeout=100)


def one_sentence(done, *words):
    """The last line of what failed is our sentence, with these words; pip and Python add no other that begins so."""
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip().startswith("hkt: ")]
    assert len(lines) == 1 and lines[0].endswith("."), done.stdout + done.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture
def other_torch(tmp_path):
    """Makes a folder whose torch has some version, which Python finds before its own."""

    def make(version, cuda):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("")
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")
        return str(tmp_path)

    return make


def program(folder, name, text):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def path_without_compiler(folder):
    """A folder as the only one on the PATH, with the programs that Python itself may call."""
    for name in ("sh", "uname", "ldconfig"):
        (folder / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/sbin/{name}")
    return str(folder)


def test_without_a_compiler(tmp_path):
    path = path_without_compiler(tmp_path)
    done = run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "-w", tmp_path / "out", source,
               PATH=path, CXX="c++")
    one_sentence(done, "C++ compiler", "g++", "make wheel")
    assert not list((tmp_path / "out").glob("*.whl"))


def test_a_torch_that_is_too_old(other_torch):
    one_sentence(call_backend("hkt_backend.get_requires_for_build_wheel()", PYTHONPATH=other_torch("2.9.1+cpu", None)), "torch 2.9.1", "2.11")


def test_the_torch_of_the_environment_is_used_and_not_asked_for(other_torch):
    done = call_backend("[hkt_backend.get_requires_for_build_wheel(), hkt_backend.settings_for(hkt_backend.needed_torch(), None)]",
                        PYTHONPATH=other_torch("2.13.1+cu132", "13.2"), HKT_CUDA="0")
    requirements, settings = json.loads(done.stdout)
    assert not [name for name in requirements if name.startswith("torch")]
    assert settings["wheel.build-tag"] == "0torch2.13.1" and settings["cmake.define.HKT_CUDA"] == "OFF"


def test_where_there_is_no_torch_the_projects_own_is_asked_for():
    hide = "[setattr(hkt_backend, 'torch_folders', list), hkt_backend.get_requires_for_build_wheel()][1]"
    wanted = next(line for line in (source / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))
    assert wanted in json.loads(call_backend(hide).stdout)
    one_sentence(call_backend("[setattr(hkt_backend, 'torch_folders', list), hkt_backend.needed_torch()]"), "no torch to build for", wanted)


# None, or why the kernels of CUDA are left out.
reason = "hkt_backend.reason_for_cpu_alone(hkt_backend.needed_torch(), hkt_backend.find_nvcc())"


@pytest.mark.parametrize("cuda, release, words", [(None, "13.0", ["without CUDA"]), ("13.0", "12.4", ["12.4", "13.0"]), ("13.0", None, ["there is no nvcc"])])
def test_cuda_that_cannot_be_built_is_an_error_where_it_is_asked_for(tmp_path, other_torch, cuda, release, words):
    if release:
        program(tmp_path, "nvcc", f"echo 'Cuda compilation tools, release {release}, V{release}.1'")
    elif Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("this machine has an nvcc outside the PATH")
    variables = {"PYTHONPATH": other_torch("2.12.0", cuda), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    one_sentence(call_backend(reason, **variables, HKT_CUDA="1"), "HKT_CUDA is 1", *words)
    without = json.loads(call_backend(reason, **variables).stdout)
    assert all(word in without for word in words)
    one_sentence(call_backend(reason, **variables, HKT_CUDA="yes"), "HKT_CUDA is 'yes'")
    assert json.loads(call_backend(reason, **variables, HKT_CUDA="0").stdout) == "HKT_CUDA is 0"


@pytest.mark.parametrize("gpu", [True, False])
def test_cuda_is_built_where_both_nvcc_and_a_gpu_are(tmp_path, other_torch, gpu):
    program(tmp_path, "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.1'")
    program(tmp_path, "nvidia-smi", "exit 0" if gpu else "exit 9")
    variables = {"PYTHONPATH": other_torch("2.12.0", "13.0"), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    found = json.loads(call_backend(reason, **variables).stdout)
    assert found is None if gpu else "there is no GPU" in found
    assert json.loads(call_backend(reason, **variables, HKT_CUDA="1").stdout) is None


def test_requirements_of_sources_and_of_a_wheel(other_torch):
    hook = "[m := hkt_backend.Metadata(), m.build_state('{}'), m.dynamic_metadata({{}}, {{}})][2]"
    path = other_torch("2.13.1+cu132", "13.2")
    assert json.loads(call_backend(hook.format("sdist"), PYTHONPATH=path).stdout)["dependencies"] == ["torch>=2.11", "safetensors>=0.4"]
    wheel = json.loads(call_backend(hook.format("wheel"), PYTHONPATH=path).stdout)
    assert wheel["dependencies"] == ["torch==2.13.1", "safetensors>=0.4"]
    assert wheel["version"] == torch.ops.hkt.build()["version"]


def imported(**environment):
    code = "try:\n  import hkt\nexcept ImportError as error:\n  print(error)"
    return run(sys.executable, "-c", code, **environment).stdout.strip()


def test_operators_of_another_torch(build_folder, tmp_path):
    (tmp_path / "other.cpp").write_text('#include <string>\nnamespace at { std::string show_config() { return "TORCH_VERSION=2.99.0,"; } }\n')
    subprocess.run(["g++", "-shared", "-fPIC", tmp_path / "other.cpp", "-o", tmp_path / "other.so"], check=True)
    said = imported(LD_PRELOAD=str(tmp_path / "other.so"))
    assert len(said.splitlines()) == 1
    assert f"built for torch {torch.__version__.split('+')[0]}" in said and "runs torch 2.99.0" in said and "rebuild" in said


def test_operators_that_are_missing(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "hkt").symlink_to(source / "python" / "hkt")
    said = imported(HKT_LIBRARY=str(tmp_path / "libhkt_ops.so"))
    assert len(said.splitlines()) == 1 and str(tmp_path / "libhkt_ops.so") in said


def test_no_torch_at_all():
    done = run(sys.executable, "-c", "import sys; sys.modules['torch'] = None\nimport hkt")
    assert done.stderr.splitlines()[-1].startswith("ImportError: hkt needs torch")


def test_what_python_m_hkt_says(build_folder):
    told = json.loads(run(sys.executable, "-m", "hkt", "--json").stdout)
    program_says = json.loads(run(build_folder / "hkt", "info", "--json").stdout)
    for key in ("version", "torch", "processor", "cpu_kernels", "cuda", "cuda_reason"):
        assert told[key] == program_says[key], key
    text = run(sys.executable, "-m", "hkt").stdout
    assert f"hkt {told['version']}, torch {told['torch']}" in text and told["cpu_kernels"] in text
