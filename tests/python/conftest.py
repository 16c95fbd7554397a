# SPDX-License-Identifier: Apache-2.0
# Loads the operators once: those of the build folder that HKT_BUILD names, with the Python package of this checkout; or, where
# HKT_INSTALLED is set, the package that is installed.
import os
import sys
from pathlib import Path

import pytest
import torch

build = Path(os.environ.get("HKT_BUILD", Path(__file__).parents[2] / "build")).resolve()
if not os.environ.get("HKT_INSTALLED"):
    package = str(Path(__file__).parents[2] / "python")
    sys.path.insert(0, package)
    # Processes that tests start find the same.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    os.environ["HKT_LIBRARY"] = str(build / "libhkt_ops.so")


def pytest_configure():
    import hkt  # noqa: F401


@pytest.fixture(scope="session")
def build_folder():
    return build


@pytest.fixture(autouse=True)
def same_numbers_each_time():
    torch.manual_seed(0)
