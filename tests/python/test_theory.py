# SPDX-License-Identifier: Apache-2.0
"""hkt theory: its numbers against NumPy on the same weights and inputs, its files, and what it says of odd cases."""
import json
import math

import numpy as np
import pytest
import torch
from plain_model import classify
from program import refused, run, train_arguments
from safetensors.torch import load_file

LONG = ["data.min_tokens=40", "data.train_samples=64", "data.validation_samples=32", "data.test_samples=16", "train.epochs=1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def trained(folder, data, *changes):
    process = run(*train_arguments(folder, *LONG, *changes), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def examined(folder, data, *arguments):
    process = run("theory", folder, "--json", "--threads", 1, *arguments, data=data)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    return trained(tmp_path_factory.mktemp("runs") / "hkt", data)


def head_scores(config, parameters, tokens):
    """{(block, head): [s(l)]}, and λ of each, in float64."""
    found = {}

    def watch(block, attention, x):
        q, k, levels = attention.projected(x)
        weights = attention.weights(x.dtype)
        for head in range(config["heads"]):
            scores = [(a[0, head] @ b[0, head].T / math.sqrt(a.size(3))).numpy() for a, b in zip(q, k)]
            found[block, head] = scores, weights[head].numpy(), [y[0].numpy() for y in levels]

    classify(config, {name: p.double() for name, p in parameters.items()}, tokens[None], watch=watch)
    return found


def spread(s, level, length):
    index = np.arange(length) >> level
    return s[np.ix_(index, index)]


def kept(scores, weights, count, length):
    weights = weights[:count] / weights[:count].sum()
    return sum(w * spread(s, level, length) for level, (w, s) in enumerate(zip(weights, scores)))


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def mardia(rows, most=16):
    n = len(rows)
    centred = rows - rows.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / n)
    p = min(most, int((values > 1e-12 * values[-1]).sum()), n - 4)
    z = centred @ vectors[:, ::-1][:, :p] / np.sqrt(values[::-1][:p])
    b1 = ((z @ z.T) ** 3).mean()
    b2 = ((z * z).sum(1) ** 2).mean()
    freedom = torch.tensor(p * (p + 1) * (p + 2) / 12, dtype=torch.float64)
    skewness_p = torch.special.gammaincc(freedom, torch.tensor(n * b1 / 12, dtype=torch.float64)).item()
    v = 8 * p * (p + 2) * (n - 3) * (n - p - 1) * (n - p + 1) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    kurtosis_p = math.erfc(abs(b2 - p * (p + 2) * (n - 1) / (n + 1)) / math.sqrt(2 * v))
    return b1, b2, skewness_p, kurtosis_p


def divergence(full, other):
    log_p, log_q = log_softmax(full), log_softmax(other)
    return (np.exp(log_p) * (log_p - log_q)).sum(1).mean()


def longest_validation_sequence(data):
    """The first of the longest, which the program looks at; the packed data must be of one config alone."""
    (path,) = data.glob("*.safetensors")
    packed = load_file(path)
    offsets = packed["validation.offsets"].tolist()
    begin, end = max(zip(offsets, offsets[1:]), key=lambda pair: pair[1] - pair[0])
    return packed["validation.tokens"][begin:end].long()


def test_numbers_are_those_of_numpy(tmp_path):
    data = tmp_path / "data"
    folder = trained(tmp_path / "run", data)
    result = examined(folder, data, "--sequences", 1)
    config = result["model"]["config"]
    parameters = load_file(folder / "model.safetensors")
    tokens = longest_validation_sequence(data)
    length = len(tokens)
    assert result["data"]["longest"] == length
    found = head_scores(config, parameters, tokens)
    assert len(found) == config["blocks"] * config["heads"]
    for (block, head), (scores, weights, levels) in found.items():
        entry = result["blocks"][block]["heads"][head]
        weight = parameters[f"blocks.{block}.attention.query_key.weight"].double().numpy()
        width, d = config["width"], config["width"] // config["heads"]
        wq, wk = weight[head * d:(head + 1) * d], weight[width + head * d:width + (head + 1) * d]
        m = wq.T @ wk / math.sqrt(d)
        eigenvalues = np.linalg.eigvalsh((m + m.T) / 2)
        nonzero = eigenvalues[np.abs(eigenvalues) > 1e-12]
        np.testing.assert_allclose(entry["spectrum"][0]["eigenvalues"], nonzero, atol=1e-9)
        full = kept(scores, weights, len(scores), length)
        symmetric = np.linalg.eigvalsh((full + full.T) / 2)
        share = symmetric[0] / np.abs(symmetric).max()
        assert entry["scores_smallest_eigenvalue_share"] == pytest.approx(share, abs=1e-9)
        assert entry["commutation_error"] < 1e-12 and len(levels) == config["levels"]
        for level, s in enumerate(scores):
            part = entry["levels"][level]
            assert part["weight"] == pytest.approx(weights[level], abs=1e-9)
            assert part["directionality"] == pytest.approx(((s - s.T) ** 2).sum() / 4 / (s**2).sum(), abs=1e-9)
            if length >= 32 << level:
                b1, b2, skewness_p, kurtosis_p = mardia(s[:, :32])
                test = part["gaussianity"]
                assert test["samples"] == len(s)
                assert test["skewness"] == pytest.approx(b1, rel=1e-6)
                assert test["kurtosis"] == pytest.approx(b2, rel=1e-6)
                assert test["skewness_p"] == pytest.approx(skewness_p, rel=1e-5, abs=1e-12)
                assert test["kurtosis_p"] == pytest.approx(kurtosis_p, rel=1e-5, abs=1e-12)
            else:
                assert "long enough" in part["gaussianity"]["trouble"]
            kl = divergence(full, kept(scores, weights, level + 1, length))
            assert entry["depth"][level]["kl"] == pytest.approx(kl, abs=1e-9)


def test_the_file_is_what_is_printed(folder, data):
    result = examined(folder, data)
    written = json.loads((folder / "theory.json").read_text())
    assert written["claims"] == result["claims"] and written["blocks"] == result["blocks"]
    verdicts = {claim["claim"]: claim["verdict"] for claim in result["claims"]}
    assert verdicts["psd"] == "does not hold"  # free projections, two heads
    assert verdicts["decomposition"] == verdicts["subsumption"] == verdicts["depth"] == "holds"
    text = run("theory", folder, data=data).stdout
    assert all(claim["sentence"] in text for claim in result["claims"])
    assert "nan" not in text.lower()


@pytest.mark.parametrize("changes, claim, verdict, words", [
    (["model.levels=1"], "depth", "not decided", ["one level"]),
    (["model.positions=rotary"], "psd", "not decided", ["rotary"]),
    (["model.psd=tied"], "psd", "holds", ["all"]),
    (["model.psd=cone"], "psd", "holds", ["all"]),
])
def test_what_is_said_of_other_models(changes, claim, verdict, words, data, tmp_path):
    result = examined(trained(tmp_path / "run", data, *changes), data, "--sequences", 2)
    found = next(c for c in result["claims"] if c["claim"] == claim)
    assert found["verdict"] == verdict
    assert all(word in found["sentence"] for word in words)


def test_fresh_weights_leave_the_run_alone(folder, data):
    trained_one = examined(folder, data, "--sequences", 1)
    before = (folder / "theory.json").read_bytes()
    fresh = examined(folder, data, "--random", "--sequences", 1)
    assert fresh["model"]["random"] and fresh["blocks"] != trained_one["blocks"]
    assert (folder / "theory.json").read_bytes() == before


def test_short_sequences_are_said_to_be_short(data, tmp_path):
    folder = tmp_path / "short"
    changes = ["data.min_tokens=4", "data.max_tokens=20", "data.max_depth=2"]
    process = run(*train_arguments(folder, *LONG, *changes), data=data)
    assert process.returncode == 0, process.stderr
    result = examined(folder, data)
    found = next(c for c in result["claims"] if c["claim"] == "gaussianity")
    assert found["verdict"] == "not decided" and "long enough" in found["sentence"]


def test_bad_input_is_refused(tmp_path, folder, data):
    refused(run("theory", tmp_path, data=data), "contains no run")
    refused(run("theory", tmp_path / "nowhere", data=data), "contains no run")
    refused(run("theory", folder, "--split", "tst", data=data), "tst", "nearest")
    refused(run("theory", folder, "--sequences", 0, data=data), "--sequences")
