# SPDX-License-Identifier: Apache-2.0
# A classifier saved from C++ and run through plain PyTorch, written from the definition, gives the same logits.
import json
import subprocess

import pytest
import torch
from plain_model import classify
from safetensors import safe_open
from safetensors.torch import load_file


small = dict(heads=2, width=12, feedforward=20, classes=5, vocab=11, max_length=32)
models = [
    dict(),
    dict(levels=1),
    dict(levels=4, mask="causal"),
    dict(positions="learned", pooling="last"),
    dict(positions="rotary", mask="causal"),
    dict(positions="none", filter="depthwise", kernel_size=3),
    dict(filter="mean", kernel_size=4, weights="uniform"),
    dict(filter="dense", kernel_size=5, weights=1),
    dict(projections="per_level", pooling="last"),
    dict(psd="tied"),
    dict(psd="tied", projections="per_level", positions="rotary"),
    dict(psd="cone"),
    dict(psd="cone", projections="per_level", mask="causal"),
    dict(psd="cone", positions="rotary"),
    dict(psd="cone", projections="per_level", positions="rotary", pooling="last"),
    dict(heads=1, width=7),
]


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("model", models, ids=lambda model: " ".join(map(str, model.values())) or "default")
def test_plain_model_gives_the_same_logits(model, dtype, tolerance, build_folder, tmp_path):
    weights, case = tmp_path / "weights.safetensors", tmp_path / "case.safetensors"
    config = json.dumps({"format": 1, "model": {**small, **model}})
    subprocess.run([build_folder / "tests" / "export_classifier", config, weights, case, dtype], check=True)
    with safe_open(weights, "pt") as file:
        full_config = json.loads(file.metadata()["config"])["model"]
    assert full_config.items() >= {**small, **model}.items()
    parameters, case = load_file(weights), load_file(case)
    assert all(str(p.dtype) == f"torch.{dtype}" for p in parameters.values())

    logits = classify(full_config, parameters, case["tokens"], case["lengths"])
    torch.testing.assert_close(case["logits"], logits, rtol=tolerance, atol=tolerance)
    logits = classify(full_config, parameters, case["tokens"])
    torch.testing.assert_close(case["logits_without_lengths"], logits, rtol=tolerance, atol=tolerance)
