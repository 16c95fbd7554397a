# SPDX-License-Identifier: Apache-2.0
"""Hierarchical Kernel Transformer: softmax attention over several resolutions of a sequence, with fused kernels for CPUs and GPUs."""

from hkt import _library

library = _library.load(list(__path__))  # the operators, before anything that calls them

from hkt import cache, config, nn  # noqa: E402
from hkt._operators import attention, attention_extend, decode, downsample, level_rows  # noqa: E402
from hkt.io import load, save  # noqa: E402
from hkt.predictor import Prediction, Predictor  # noqa: E402

__version__ = _library.version()

__all__ = [
    "Prediction",
    "Predictor",
    "__version__",
    "attention",
    "attention_extend",
    "cache",
    "config",
    "decode",
    "downsample",
    "level_rows",
    "library",
    "load",
    "nn",
    "save",
]
