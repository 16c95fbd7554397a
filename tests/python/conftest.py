# SPDX-License-Identifier: Apache-2.0
# Loads the operators once, from the build folder that HKT_BUILD names.
import os
from pathlib import Path

import pytest
import torch

build = Path(os.environ.get("HKT_BUILD", Path(__file__).parents[2] / "build")).resolve()


def pytest_configure():
    torch.ops.load_library(build / "libhkt_ops.so")


@pytest.fixture(scope="session")
def build_folder():
    return build


@pytest.fixture(autouse=True)
def same_numbers_each_time():
    torch.manual_seed(0)
