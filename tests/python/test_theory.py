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


def upper_chi_squared(degrees, value):
    return torch.special.gammaincc(torch.tensor(degrees / 2, dtype=torch.float64), torch.tensor(value / 2, dtype=torch.float64)).item()


def mardia(rows, most=16):
    n = len(rows)
    centred = rows - rows.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred / n)
    p = min(most, int((values > 1e-12 * values[-1]).sum()), n - 4)
    z = centred @ vectors[:, ::-1][:, :p] / np.sqrt(values[::-1][:p])
    b1 = ((z @ z.T) ** 3).mean()
    b2 = ((z * z).sum(1) ** 2).mean()
    mean = p * (p + 2) * ((n + 1) * (p + 1) - 6) / ((n + 1) * (n + 3))
    degrees = p * (p + 1) * (p + 2) / 6 / 1.25
    v = 8 * p * (p + 2) * (n - 3) * (n - p - 1) * (n - p + 1) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    kurtosis_p = math.erfc(abs(b2 - p * (p + 2) * (n - 1) / (n + 1)) / math.sqrt(2 * v))
    return b1, b2, upper_chi_squared(degrees, degrees * b1 / mean), kurtosis_p


def fisher(p):
    return upper_chi_squared(2 * len(p), -2 * sum(math.log(max(value, 2.2250738585072014e-308)) for value in p))


def divergence(full, other):
    log_p, log_q = log_softmax(full), log_softmax(other)
    return (np.exp(log_p) * (log_p - log_q)).sum(1).mean()


def half_variance(full, other):
    """½ max Var of the difference along the path from one softmax to the other, at nine points."""
    delta, log_p = full - other, log_softmax(full)
    largest = 0
    for s in np.arange(9) / 8:
        p = np.exp(log_softmax(log_p - s * delta))
        largest = np.maximum(largest, (p * (delta - (p * delta).sum(1, keepdims=True)) ** 2).sum(1))
    return (largest / 2).mean()


def shares(scores, weights, length):
    """The covariance of every level with the sum over keys, by row."""
    centred = [w * spread(s, level, length) for level, (w, s) in enumerate(zip(weights, scores))]
    centred = [s - s.mean(1, keepdims=True) for s in centred]
    total = sum(centred)
    return [((s * total).sum(1) / (total**2).sum(1)).mean() for s in centred]


def curl_share(s):
    minus = (s - s.T) / 2
    a = minus.mean(1)
    return ((minus - a[:, None] + a[None]) ** 2).sum() / (minus**2).sum()


def mersenne_twister(seed):
    """std::mt19937_64."""
    mask, state, i = 2**64 - 1, [seed], 312
    for j in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ state[-1] >> 62) + j) & mask)
    while True:
        if i == 312:
            for j in range(312):
                x = state[j] & 0xFFFFFFFF80000000 | state[(j + 1) % 312] & 0x7FFFFFFF
                state[j] = state[(j + 156) % 312] ^ x >> 1 ^ (0xB5026F5AA96619E9 if x & 1 else 0)
            i = 0
        x, i = state[i], i + 1
        x ^= x >> 29 & 0x5555555555555555
        x ^= x << 17 & 0x71D67FFFEDA60000
        x ^= x << 37 & 0xFFF7EEE000000000
        yield x ^ x >> 43


def shuffle(items, generator):
    for i in range(len(items), 1, -1):
        j = next(generator) % i
        items[i - 1], items[j] = items[j], items[i - 1]


def drawn_sequences(data, count, wanted, seed=0):
    """What the program looks at: in turn one of each label. The packed data must be of one config alone."""
    (path,) = data.glob("*.safetensors")
    packed = load_file(path)
    offsets, labels = packed["validation.offsets"].tolist(), packed["validation.labels"].tolist()
    generator = mersenne_twister(seed)
    order = list(range(len(labels)))
    shuffle(order, generator)
    order.sort(key=lambda i: offsets[i + 1] - offsets[i] < wanted)
    by_label = {}
    for i in order:
        by_label.setdefault(labels[i], []).append(i)
    names = sorted(by_label)
    shuffle(names, generator)
    turns = [by_label[name][turn] for turn in range(len(order)) for name in names if turn < len(by_label[name])]
    return [packed["validation.tokens"][offsets[i]:offsets[i + 1]].long() for i in turns[:count]]


def check_kernel(entry, config, weight, head):
    width, d = config["width"], config["width"] // config["heads"]
    wq, wk = weight[head * d:(head + 1) * d], weight[width + head * d:width + (head + 1) * d]
    m = wq.T @ wk / math.sqrt(d)
    eigenvalues = np.linalg.eigvalsh((m + m.T) / 2)
    np.testing.assert_allclose(entry["spectrum"][0]["eigenvalues"], eigenvalues[np.abs(eigenvalues) > 1e-12], atol=1e-9)


def check_scores(entry, found, lengths):
    """found: for each sequence the scores of a head and λ."""
    mean = lambda value: sum(value(*one, n) for one, n in zip(found, lengths)) / len(found)
    whole = [kept(scores, weights, len(scores), n) for (scores, weights, _), n in zip(found, lengths)]
    spectra = [np.linalg.eigvalsh((full + full.T) / 2) for full in whole]
    assert entry["scores_smallest_eigenvalue_share"] == pytest.approx(min(e[0] / np.abs(e).max() for e in spectra), abs=1e-9)
    negative = [(e[e < 0] ** 2).sum() / (e**2).sum() for e in spectra]
    assert entry["scores_negative_energy"] == pytest.approx(np.mean(negative), abs=1e-9)
    assert entry["curl_share"] == pytest.approx(np.mean([curl_share(full) for full in whole]), abs=1e-9)
    assert entry["commutation_error"] < 1e-12
    for level, part in enumerate(entry["levels"]):
        assert part["weight"] == pytest.approx(found[0][1][level], abs=1e-9)
        assert part["share"] == pytest.approx(mean(lambda s, w, _, n: shares(s, w, n)[level]), abs=1e-9)
        assert part["directionality"] == pytest.approx(mean(lambda s, *_: ((s[level] - s[level].T) ** 2).sum() / 4 / (s[level] ** 2).sum()), abs=1e-9)
        assert part["curl_share"] == pytest.approx(mean(lambda s, *_: curl_share(s[level])), abs=1e-9)
        reach = max(w[level] * np.ptp(s[level], axis=1).max() for s, w, _ in found)
        assert part["reach"] == pytest.approx(reach, rel=1e-9)
        depth = entry["depth"][level]
        assert depth["kl"] == pytest.approx(mean(lambda s, w, _, n: divergence(kept(s, w, len(s), n), kept(s, w, level + 1, n))), abs=1e-9)
        tilted = mean(lambda s, w, _, n: half_variance(kept(s, w, len(s), n), kept(s, w, level + 1, n)))
        assert depth["tilted"] == pytest.approx(tilted, abs=1e-9)
        plain = lambda s, w, n: sum(w[l] * spread(s[l], l, n) for l in range(level + 1))
        assert depth["plain_kl"] == pytest.approx(mean(lambda s, w, _, n: divergence(kept(s, w, len(s), n), plain(s, w, n))), abs=1e-9)


def check_normality(entry, found, lengths):
    for level, part in enumerate(entry["levels"]):
        tests = [mardia(s[level][:, :32]) for (s, *_), n in zip(found, lengths) if n >= 32 << level]
        assert all(n >> level <= 256 for n in lengths), "not all rows are tested"
        if not tests:
            assert "long enough" in part["normality"]["trouble"]
            continue
        test = part["normality"]
        assert test["sequences"] == len(tests)
        b1, b2, skewness_p, kurtosis_p = zip(*tests)
        assert test["skewness"] == pytest.approx(np.mean(b1), rel=1e-6)
        assert test["kurtosis"] == pytest.approx(np.mean(b2), rel=1e-6)
        assert test["skewness_p"] == pytest.approx(fisher(skewness_p), rel=1e-4, abs=1e-12)
        assert test["kurtosis_p"] == pytest.approx(fisher(kurtosis_p), rel=1e-4, abs=1e-12)


def test_numbers_are_those_of_numpy(tmp_path):
    data = tmp_path / "data"
    folder = trained(tmp_path / "run", data, "model.max_length=160", "data.min_tokens=110", "data.max_tokens=160")
    result = examined(folder, data, "--sequences", 3)
    config = result["model"]["config"]
    parameters = load_file(folder / "model.safetensors")
    sequences = drawn_sequences(data, 3, 32 << config["levels"] - 1)
    lengths = [len(tokens) for tokens in sequences]
    assert (result["data"]["shortest"], result["data"]["longest"]) == (min(lengths), max(lengths))
    found = [head_scores(config, parameters, tokens) for tokens in sequences]
    assert len(found[0]) == config["blocks"] * config["heads"]
    for block, head in found[0]:
        entry = result["blocks"][block]["heads"][head]
        check_kernel(entry, config, parameters[f"blocks.{block}.attention.query_key.weight"].double().numpy(), head)
        own = [one[block, head] for one in found]
        check_scores(entry, own, lengths)
        check_normality(entry, own, lengths)
    ratios = [sum((-(-n // 2**level)) ** 2 for level in range(config["levels"])) / n**2 for n in lengths]
    assert result["cost"]["scores"]["largest"] == pytest.approx(max(ratios), rel=1e-12)


def test_the_file_is_what_is_printed(folder, data):
    result = examined(folder, data)
    written = json.loads((folder / "theory.json").read_text())
    assert written["claims"] == result["claims"] and written["blocks"] == result["blocks"]
    verdicts = {claim["claim"]: claim["verdict"] for claim in result["claims"]}
    assert verdicts["psd"] == "does not hold"  # free projections, two heads
    assert verdicts["psd-implication"] == "not decided", "no kernel meets the condition"
    assert verdicts["decomposition"] == verdicts["subsumption"] == verdicts["depth"] == "proved", "theorems do not hold, they are proved"
    assert verdicts["gaussianity"] != "holds", "which no test can show"
    assert all(claim["rule"] for claim in result["claims"])
    assert [shift["shift"] for shift in result["phase"]] == [1, 2, 3, 4] and result["phase"][-1]["largest_logit_change"] < 1e-9
    text = run("theory", folder, data=data).stdout
    assert all(claim["sentence"] in text for claim in result["claims"])
    assert "nan" not in text.lower()
    assert "share" in text and "λ" in text


@pytest.mark.parametrize("changes, claim, verdict, words", [
    (["model.levels=1"], "depth", "not decided", ["one level"]),
    (["model.levels=1"], "strictness", "not decided", ["one level"]),
    (["model.levels=1"], "phase", "not decided", ["one level"]),
    (["model.positions=rotary"], "psd", "not decided", ["rotary"]),
    (["model.positions=rotary"], "decomposition", "not decided", ["rotary"]),
    (["model.psd=tied"], "psd", "holds", ["parametrisation"]),
    (["model.psd=tied"], "psd-implication", "proved", ["heads meet the condition"]),
    (["model.psd=tied"], "independence", "not decided", ["no directional part"]),
    (["model.psd=cone", "model.positions=rotary"], "psd", "holds", ["parametrisation"]),
    (["model.psd=cone", "model.positions=rotary"], "psd-implication", "proved", ["heads meet the condition"]),
    (["model.filter=mean"], "subsumption", "not decided", ["constants"]),
    (["model.positions=none"], "length", "holds", ["predicted"]),
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
