# SPDX-License-Identifier: Apache-2.0
# Loading the operators: in a fresh process, and under a torch that they were not built for.
import os
import subprocess
import sys

import pytest


def run_python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)


def test_operators_work_in_a_fresh_process(build_folder):
    done = run_python(f"""
import torch
torch.ops.load_library("{build_folder}/libhkt_ops.so")
torch.ops.load_library("{build_folder}/libhkt_ops.so")
x = torch.randn(1, 2, 7, 4)
out, lse = torch.ops.hkt.attention([x], [x], x, torch.ones(2, 1))
torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(x, x, x))
""")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def other_torch(tmp_path):
    source = tmp_path / "other_torch.cpp"
    source.write_text("""
#include <string>
namespace at { std::string show_config() { return "BLAS_INFO=mkl, TORCH_VERSION=1.2.3, USE_CUDA=0"; } }
""")
    library = tmp_path / "other_torch.so"
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def test_another_torch_is_refused(build_folder, other_torch):
    code = f"""
import torch
try:
    torch.ops.load_library("{build_folder}/libhkt_ops.so")
except OSError as error:
    print(error.__cause__.__cause__)
print(hasattr(torch.ops.hkt, "attention"))
"""
    done = run_python(code, LD_PRELOAD=str(other_torch))
    message, registered = done.stdout.splitlines()
    assert "built for torch 2.11.0" in message and "this process runs torch 1.2.3" in message
    assert registered == "False"


def test_no_torch_is_refused(build_folder):
    done = run_python(f'import ctypes; ctypes.CDLL("{build_folder}/libhkt_ops.so")')
    assert done.returncode == 1
    assert "import torch first" in done.stderr
