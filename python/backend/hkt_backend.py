# SPDX-License-Identifier: Apache-2.0
"""Builds the Python package: scikit-build-core, told which torch to build for and whether with CUDA.

A build is for one version of torch. It is the one in the environment that pip installs into, so that nothing replaces it; where
there is none, the one that requirements.txt names. Whatever is missing is said in one sentence, before anything is compiled.
"""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


def fail(sentence: str) -> SystemExit:
    return SystemExit(f"hkt: {sentence}")


WITHOUT_ISOLATION = "this Python lacks {}, which the build needs; pip install {}, or leave out --no-build-isolation."
try:
    from scikit_build_core import build as skbuild
    from scikit_build_core.build import build_sdist, get_requires_for_build_sdist
except ModuleNotFoundError as error:  # pip would call the backend unavailable, and not say why
    if not (error.name or "").startswith("scikit_build_core"):
        raise
    raise fail(WITHOUT_ISOLATION.format("scikit-build-core", "'scikit-build-core>=1.1' cmake ninja")) from None

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable", "get_requires_for_build_sdist",
           "get_requires_for_build_wheel", "prepare_metadata_for_build_editable", "prepare_metadata_for_build_wheel"]

Settings = dict[str, list[str] | str]
OLDEST_TORCH, OLDEST_GCC, OLDEST_CUDA = (2, 11), 12, (12, 4)
MEMORY_OF_A_COMPILER = 2 << 30  # in bytes, with some to spare
SOURCE = Path(__file__).parents[2]


class Torch(NamedTuple):
    folder: Path
    version: str  # without what follows a plus sign
    cuda: str | None


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def default_torch() -> str:
    """The requirement of this project's own build, torch==…"""
    return next(line for line in (SOURCE / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))


def torch_folders() -> list[str]:
    """Where torch is: as imported here, then as imported by the environment that is installed into, which an isolated build hides
    by these variables."""
    ask = "import importlib.util as u; s = u.find_spec('torch'); print(*(s.submodule_search_locations or []) if s else [], sep='\\n')"
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    spec = importlib.util.find_spec("torch")
    here = list(spec.submodule_search_locations or []) if spec else []
    there = subprocess.run([sys.executable, "-c", ask], env=outside, cwd="/", capture_output=True, text=True, check=False).stdout
    return here + there.splitlines()


def find_torch() -> Torch | None:
    for folder in map(Path, torch_folders()):
        if (folder / "version.py").exists():
            facts = runpy.run_path(str(folder / "version.py"))
            torch = Torch(folder, facts["__version__"].split("+")[0], facts.get("cuda"))
            if numbers(torch.version) < OLDEST_TORCH:
                raise fail(f"{folder} is torch {torch.version}, and hkt needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later; "
                           "upgrade it, or install hkt into an environment of its own.")
            return torch
    return None


def needed_torch() -> Torch:
    torch = find_torch()
    if torch is None:
        raise fail(f"there is no torch to build for; pip install {default_torch()}, or leave out --no-build-isolation.")
    return torch


def check_compiler() -> None:
    named = os.environ.get("CXX", "").split()
    names = named[:1] or ["c++", "g++", "clang++"]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise fail(f"there is no C++ compiler ({', '.join(names)}); install GCC {OLDEST_GCC} or later (Debian, Ubuntu: apt-get install g++), "
                   "or a wheel that `make wheel` wrote on another machine.")
    printed = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}).stdout
    found = re.search(r"\) (\d+)\.\d+", printed)
    if "Free Software Foundation" in printed and found and int(found[1]) < OLDEST_GCC:
        raise fail(f"{compiler} is GCC {found[1]}, and hkt needs GCC {OLDEST_GCC} or later; install it and name it by CXX=g++-{OLDEST_GCC}.")


def check_tools() -> None:
    """pip has installed them in an isolated build, and in no other."""
    wanted = [re.split(r"\W", requirement)[0] for requirement in skbuild.get_requires_for_build_wheel()]
    missing = [name for name in wanted if not importlib.util.find_spec(name)]
    if missing:
        raise fail(WITHOUT_ISOLATION.format(" and ".join(missing), " ".join(missing)))


def find_nvcc() -> str | None:
    if named := os.environ.get("CUDACXX"):
        return shutil.which(named)
    home = os.environ.get("CUDA_HOME")
    places = [f"{home}/bin" if home else "", os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    return shutil.which("nvcc", path=os.pathsep.join(filter(None, places)))


def why_no_cuda(torch: Torch, nvcc: str | None) -> str | None:
    """What keeps this machine from compiling for the CUDA of this torch."""
    if torch.cuda is None:
        return f"torch {torch.version} in {torch.folder.parent} is built without CUDA"
    if nvcc is None:
        return "there is no nvcc"
    printed = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+)", printed)
    version = f"{found[1]}.{found[2]}" if found else "of unknown version"
    if found is None or found[1] != torch.cuda.split(".")[0]:
        return f"{nvcc} is CUDA {version}, and torch {torch.version} is built for CUDA {torch.cuda}"
    if numbers(version) < OLDEST_CUDA:
        return f"{nvcc} is CUDA {version}, and hkt needs CUDA {OLDEST_CUDA[0]}.{OLDEST_CUDA[1]} or later"
    return None


def has_gpu() -> bool:
    tool = shutil.which("nvidia-smi")
    return tool is not None and subprocess.run([tool, "-L"], capture_output=True, check=False).returncode == 0


def reason_for_cpu_alone(torch: Torch, nvcc: str | None) -> str | None:
    """None if CUDA kernels are built: as $HKT_CUDA says; if it says nothing, where both a fitting nvcc and a GPU are."""
    wish = os.environ.get("HKT_CUDA", "")
    if wish not in ("", "0", "1"):
        raise fail(f"HKT_CUDA is {wish!r}; it must be 0 or 1, or not set.")
    if wish == "0":
        return "HKT_CUDA is 0"
    reason = why_no_cuda(torch, nvcc)
    if wish == "1" and reason:
        raise fail(f"HKT_CUDA is 1, but {reason}; install the CUDA toolkit of torch's version, or build without HKT_CUDA.")
    if wish == "" and not reason and not has_gpu():
        return "there is no GPU (HKT_CUDA=1 builds for one all the same)"
    return reason


def compilers_at_once() -> str:
    """$CMAKE_BUILD_PARALLEL_LEVEL, else one for each core, as far as the memory reaches."""
    if named := os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL"):
        return named
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())  # with what caches would give back
    if available:
        memory = int(available[1]) << 10
    return str(max(1, min(len(os.sched_getaffinity(0)), memory // MEMORY_OF_A_COMPILER)))


def settings_for(torch: Torch, given: Settings | None) -> Settings:
    nvcc = find_nvcc()
    reason = reason_for_cpu_alone(torch, nvcc)
    label = f"0torch{torch.version}"
    settings = {
        "cmake.define.HKT_PYTHON": sys.executable,
        "cmake.define.HKT_TORCH": str(torch.folder),
        "cmake.define.HKT_CUDA": "OFF" if reason else "ON",
    }
    if reason:
        settings["cmake.define.HKT_WITHOUT_CUDA"] = reason
    else:
        settings["cmake.define.NVCC"] = str(nvcc)
        label += f".cu{str(torch.cuda).replace('.', '')}"
    # The name of a wheel says which torch it is for.
    return {**settings, "wheel.build-tag": label, **(given or {})}


def compile_with(hook: Any, directory: str, given: Settings | None, metadata_directory: str | None) -> str:
    check_compiler()
    check_tools()
    torch = needed_torch()
    settings = settings_for(torch, given)
    jobs = os.environ["CMAKE_BUILD_PARALLEL_LEVEL"] = compilers_at_once()
    os.environ.setdefault("NINJA_STATUS", "[%f/%t, %e s] ")
    reason = settings.get("cmake.define.HKT_WITHOUT_CUDA")
    kernels = f"the CPU alone, because {reason}" if reason else f"the CPU and CUDA {torch.cuda}"
    print(f"hkt: building for torch {torch.version} on {kernels}; {jobs} compilers at once.", file=sys.stderr, flush=True)
    return str(hook(directory, settings, metadata_directory))


def requirements(own: list[str]) -> list[str]:
    check_compiler()  # before pip fetches gigabytes
    torch = find_torch()
    if torch is None:
        return [*own, default_torch()]
    settings_for(torch, None)
    return own


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    return requirements(skbuild.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    return requirements(skbuild.get_requires_for_build_editable(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings | None = None) -> str:
    check_compiler()
    check_tools()
    return str(skbuild.prepare_metadata_for_build_wheel(metadata_directory, settings_for(needed_torch(), config_settings)))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings | None = None) -> str:
    check_compiler()
    check_tools()
    return str(skbuild.prepare_metadata_for_build_editable(metadata_directory, settings_for(needed_torch(), config_settings)))


def build_wheel(wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    return compile_with(skbuild.build_wheel, wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory: str, config_settings: Settings | None = None, metadata_directory: str | None = None) -> str:
    return compile_with(skbuild.build_editable, wheel_directory, config_settings, metadata_directory)


class Metadata:
    """The version, and what is needed: of torch in a wheel the one it was built for, in the sources any that they can be built for."""

    def __init__(self) -> None:
        self.state = ""

    def build_state(self, build_state: str) -> None:
        self.state = build_state

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        return {"dependencies": True}

    def dynamic_metadata(self, settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
        version = re.search(r"project\(hkt VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())
        assert version, "CMakeLists.txt has no version"
        torch = f">={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}" if self.state == "sdist" else f"=={needed_torch().version}"
        return {"version": version[1], "dependencies": [f"torch{torch}", "safetensors>=0.4"]}
