# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the compiled operators, which are made for one version of torch."""

import os
from pathlib import Path
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("hkt needs torch, and there is none in this Python; install the one that hkt was built for.") from None

LIBRARY = "libhkt_ops.so"


def find(package: list[str]) -> Path:
    """$HKT_LIBRARY, else the library installed in one of the package's folders, else the one that `make build` left in this checkout."""
    if chosen := os.environ.get("HKT_LIBRARY"):
        return Path(chosen)
    places = [Path(folder) / LIBRARY for folder in package]
    places.append(Path(__file__).resolve().parents[2] / "build" / LIBRARY)
    for place in places:
        if place.exists():
            return place
    raise ImportError(f"hkt has no compiled operators beside {places[0].parent}; install it with `pip install .`, or run `make build` in its source.")


def load(package: list[str]) -> Path:
    path = find(package)
    operators: Any = torch.ops
    try:
        operators.load_library(path)
    except OSError as error:
        reason: BaseException = error
        while reason.__cause__ is not None:  # the library says why in an ImportError of its own
            reason = reason.__cause__
        raise ImportError(str(reason)) from None
    return path


def version() -> str:
    return str(torch.ops.hkt.build()["version"])
