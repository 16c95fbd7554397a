# SPDX-License-Identifier: Apache-2.0
"""Language models through the program: training, resuming, scoring, generating, and what is said of bad input."""
import json
import math
import os
import pty
import random
import signal
import struct
import subprocess
from pathlib import Path

import pytest
import torch
from plain_model import predict_next
from program import command, environment, metrics, refused, run, wait_until
from safetensors.torch import load_file

TINY = [
    "model.width=16", "model.heads=2", "model.feedforward=16", "model.blocks=2", "model.max_length=48", "train.batch=4",
    "train.epochs=3", "train.epoch_steps=12", "train.checkpoint_seconds=0", "train.validation_tokens=0",
]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def books(tmp_path_factory):
    """A folder of small texts with some structure to learn."""
    folder = tmp_path_factory.mktemp("books")
    generator = random.Random(1)
    for number in range(6):
        lines = (f"{a} plus {b} is {a + b}, " + "é" * (a % 3) for a, b in
                 ((generator.randrange(10), generator.randrange(10)) for _ in range(60)))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return folder


def train_arguments(folder, books, *changes, preset="lm"):
    return ["train", preset, "--threads", 1, "--device", "cpu", "--out", folder, "--set", f"data.train={books}", *TINY,
            *changes]


@pytest.fixture(scope="session")
def finished(tmp_path_factory, books, data):
    """A run that nothing disturbed. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    process = run(*train_arguments(folder, books), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def weights(folder, dtype=torch.float64):
    return {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}


def config(folder):
    return json.loads((folder / "config.json").read_text())["model"]


def numbers(folder):
    clocks = {"seconds", "tokens_per_second", "utilisation", "data_wait_share", "validation_seconds", "probe_seconds"}
    return [{key: value for key, value in line.items() if key not in clocks} for line in metrics(folder)]


def test_what_the_metrics_say(finished, books):
    lines = metrics(finished)
    size = sum(len(file.read_bytes()) + 1 for file in books.iterdir())
    assert lines[0]["documents"] == 6
    assert lines[0]["train_tokens"] + lines[0]["validation_tokens"] == pytest.approx(0.95 * size, abs=2)
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert [line["step"] for line in epochs] == [12, 24, 36]
    for line in epochs:
        assert line["validation_bits_per_byte"] == pytest.approx(line["validation_loss"] / math.log(2))
    assert epochs[-1]["validation_bits_per_byte"] < epochs[0]["validation_bits_per_byte"] < 8
    steps = [line for line in lines if line["event"] == "step"]
    assert all(0 < line["utilisation"] < 2 and line["tokens_per_second"] > 0 for line in steps)


@pytest.mark.parametrize("changes", [
    [], ["model.tied=true"], ["model.key_heads=1", "model.levels=4"], ["model.filter_on=projected"],
    ["model.short_convolution=depthwise"], ["model.short_convolution=dense", "model.convolution_on=qkv"],
    ["model.biases=true", "model.positions=learned"],
])
def test_the_score_is_that_of_the_definition(books, data, tmp_path, changes):
    """Every byte once, with at least half a window before it, and the weights in plain PyTorch."""
    folder = tmp_path / "run"
    assert run(*train_arguments(folder, books, "train.epochs=1", *changes), data=data).returncode == 0
    score = json.loads(run("eval", folder, "--split", "validation", "--json", data=data).stdout)
    whole = b"".join(file.read_bytes() + b"\0" for file in sorted(books.iterdir()))
    share = int(0.05 * len(whole))
    stream = torch.tensor(list(whole[-2 * share : -share]))
    model, parameters = config(folder), weights(folder)
    length, total = model["max_length"], 0.0
    scored = 0
    for begin in range(0, len(stream) - 1, length // 2):
        inputs, targets = stream[begin : begin + length], stream[begin + 1 : begin + length + 1]
        logits = predict_next(model, parameters, inputs[None, : len(targets)])[0]
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        total += losses[max(scored - begin, 0):].sum().item()
        scored = begin + len(targets)
        if scored == len(stream) - 1:
            break
    assert score["bytes"] == len(stream) - 1
    assert score["bits_per_byte"] == pytest.approx(total / (len(stream) - 1) / math.log(2), abs=1e-4)


def test_losses_by_position_cover_the_window(finished, data):
    positions = json.loads(run("eval", finished, "--json", data=data).stdout)["by_position"]
    assert [(row["begin"], row["end"]) for row in positions] == [(0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 48)]


def test_killed_again_and_again_a_run_ends_with_the_same_bits(finished, books, data, tmp_path):
    folder = tmp_path / "killed"
    arguments = train_arguments(folder, books)
    generator = random.Random(3)
    for attempt in range(5):
        process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=environment(HKT_DATA=data))
        target = generator.randrange(1, 8)
        before = len(metrics(folder)) if (folder / "metrics.jsonl").exists() else 0
        wait_until(lambda: (folder / "metrics.jsonl").exists() and
                   (folder / "metrics.jsonl").read_text().count("\n") >= before + target, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        arguments = ["train", "--resume", folder]
    assert run(*arguments, data=data).returncode == 0
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert numbers(folder) == numbers(finished)


def test_parts_of_a_batch_give_the_same_gradients(finished, books, data, tmp_path):
    for parts in (2, 3):
        folder = tmp_path / str(parts)
        assert run(*train_arguments(folder, books, f"train.accumulate={parts}"), data=data).returncode == 0
        ours, theirs = weights(folder), weights(finished)
        for name, tensor in ours.items():
            torch.testing.assert_close(tensor, theirs[name], atol=2e-3, rtol=1e-2, msg=name)


def records(path):
    """The messages of a TFRecord file."""
    content = path.read_bytes()
    while content:
        (size,) = struct.unpack("<Q", content[:8])
        yield content[12 : 12 + size]
        content = content[16 + size :]


def test_tensorboard_gets_the_numbers(books, data, tmp_path):
    folder = tmp_path / "run"
    assert run(*train_arguments(folder, books, "train.tensorboard=true"), data=data).returncode == 0
    (file,) = folder.glob("events.out.tfevents.*")
    messages = list(records(file))
    assert b"brain.Event:2" in messages[0]
    losses = [line["loss"] for line in metrics(folder) if line["event"] == "step"]
    for loss in losses:
        assert any(struct.pack("<f", loss) in message and b"train/loss" in message for message in messages)
    assert sum(b"validation_bits_per_byte" in message for message in messages) == 3


# Generating


def generate(folder, *arguments, **options):
    process = run("generate", folder, "--threads", 1, *arguments, **options)
    assert process.returncode == 0, process.stderr
    return process


def greedy(folder, prompt, count):
    """By full forward passes in float64; ends early where the two best are nearly equal."""
    model, parameters, tokens = config(folder), weights(folder), list(prompt) or [0]
    for _ in range(count):
        best = predict_next(model, parameters, torch.tensor([tokens]))[0, -1].topk(2)
        if best.values[0] - best.values[1] < 1e-4 or best.indices[0] == 0:
            break
        tokens.append(best.indices[0].item())
    return bytes(tokens[len(prompt) or 1:])


@pytest.mark.parametrize("levels", [1, 3, 5])
def test_greedy_text_is_that_of_full_forward_passes(books, data, tmp_path, levels):
    folder = tmp_path / "run"
    assert run(*train_arguments(folder, books, f"model.levels={levels}"), data=data).returncode == 0
    for prompt in (b"", b"3", b"3 plus", b"3 plus 4 is ", b"1 plus 1 is 2, \n2 plus "):
        expected = greedy(folder, prompt, 46 - len(prompt))
        process = subprocess.run(command("generate", folder, "--temperature", 0, "--tokens", len(expected), "--prompt", prompt.decode()),
                                 capture_output=True, env=environment(), timeout=100)
        assert process.returncode == 0, process.stderr
        assert process.stdout.removesuffix(b"\n") == expected.removesuffix(b"\n"), prompt


def test_a_seed_decides_the_text(finished):
    texts = [generate(finished, "--prompt", "4 ", "--tokens", 30, "--seed", seed, "--json").stdout for seed in (0, 0, 1)]
    first, again, other = (json.loads(text)["text"] for text in texts)
    assert first == again != other


def test_a_text_may_be_longer_than_the_context(finished):
    line = json.loads(generate(finished, "--prompt", "1 plus 1", "--tokens", 200, "--json", "--temperature", 0.1).stdout)
    assert line["tokens"] == 200 or line["ended"] == "end"


def test_top_k_of_one_is_greedy(finished):
    both = [generate(finished, "--prompt", "2 p", "--tokens", 30, *options).stdout for options in
            (["--top-k", 1], ["--temperature", 0], ["--top-p", 1e-9])]
    assert both[0] == both[1] == both[2]


def test_stop_texts_are_not_printed(finished):
    whole = generate(finished, "--prompt", "2 p", "--tokens", 40, "--temperature", 0).stdout.rstrip("\n")
    for stop in (whole[10:13], whole[-4:], "nothing like it"):
        process = generate(finished, "--prompt", "2 p", "--tokens", 40, "--temperature", 0, "--stop", stop)
        assert process.stdout.rstrip("\n") == whole.split(stop)[0].rstrip("\n")


def test_prompts_from_standard_input(finished):
    options = ["--tokens", 8, "--temperature", 0, "--json"]
    lines = generate(finished, *options, "--lines", input="1 plus\n2 plus\n").stdout.splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == ["1 plus", "2 plus"]
    (whole,) = generate(finished, *options, input="1 plus\n2 plus").stdout.splitlines()
    assert json.loads(whole)["prompt"] == "1 plus\n2 plus"
    alone = generate(finished, *options, "--prompt", "1 plus").stdout
    assert json.loads(alone)["text"] == json.loads(lines[0])["text"]


def on_terminal(folder, *arguments, interrupt_after=None):
    """What a terminal gets, and the exit code."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command("generate", folder, *arguments), stdout=follower, stdin=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=environment())
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
        if interrupt_after is not None and len(shown) >= interrupt_after:
            process.send_signal(signal.SIGINT)
            interrupt_after = None
    os.close(leader)
    return shown.replace(b"\r\n", b"\n"), process.wait()


def test_a_terminal_sees_whole_characters_and_a_whole_line(finished):
    shown, code = on_terminal(finished, "--prompt", "5 plus", "--tokens", 400, "--temperature", 1.5, "--seed", 4)
    assert code == 0
    assert shown.endswith(b"\n")
    text = shown.decode()  # not one broken character
    assert not any(ord(c) < 32 and c not in "\n\t" for c in text)


def test_ctrl_c_leaves_a_whole_line(finished):
    shown, code = on_terminal(finished, "--prompt", "5 plus", "--tokens", 10_000_000, "--temperature", 0, interrupt_after=50)  # a greedy text has no end
    assert code == 130
    assert shown.endswith(b"\n")


# Wrong use


@pytest.mark.parametrize("changes, words", [
    (["data.train=/nowhere/at/all"], ["/nowhere/at/all"]),
    (["data.pattern=*.md"], ["*.md"]),
    (["model.max_length=100000"], ["100001", "model.max_length"]),
    (["model.kind=classifier", "model.mask=none"], ["model.kind", "lm"]),
    (["model.vocab=100"], ["model.vocab is 100", "256"]),
    (["model.mask=none"], ["model.mask", "causal"]),
    (["data.validation=0.6"], ["validation"]),
])
def test_a_wrong_setting_is_one_sentence(books, data, tmp_path, changes, words):
    refused(run(*train_arguments(tmp_path / "run", books, *changes), data=data), *words)
    assert not (tmp_path / "run").exists()


def test_an_empty_file_is_one_sentence(data, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    refused(run(*train_arguments(tmp_path / "run", tmp_path / "empty.txt"), data=data), "empty.txt", "empty")


def test_a_classifier_does_not_learn_from_a_stream(books, data, tmp_path):
    refused(run("train", "listops", "--out", tmp_path / "run", "--set", "train.epoch_steps=3", data=data), "train.epoch_steps")
    refused(run("train", "imdb", "--out", tmp_path / "run", "--set", "data.task=shakespeare", data=data), "model.kind", "shakespeare")


def test_commands_say_which_kind_of_model_they_take(finished, data, tmp_path):
    refused(run("predict", finished, input="x\n", data=data), "language model", "hkt generate")
    refused(run("generate", Path(__file__).parents[2] / "models" / "imdb-hkt", "--prompt", "x"), "classifier", "hkt predict")
    for option, value, word in (("--top-p", 0, "top-p"), ("--temperature", -1, "temperature"), ("--stop", "", "--stop"),
                                ("--top-k", -2, "top-k")):
        refused(run("generate", finished, "--prompt", "x", option, value), word)
    refused(run("generate", finished, "--lines", "--prompt", "x"), "--lines")


def test_theory_and_explanations_work_with_a_language_model(finished, data, tmp_path):
    assert run("theory", finished, "--sequences", 2, data=data).returncode == 0
    page = tmp_path / "page.html"
    process = run("explain", finished, "--text", "3 plus 4 is ", "--out", page, data=data)
    assert process.returncode == 0, process.stderr
    assert page.stat().st_size > 1000


def test_an_exported_model_generates(finished, tmp_path):
    assert run("export", finished, "--out", tmp_path / "small").returncode == 0
    assert (tmp_path / "small" / "model.safetensors").stat().st_size < (finished / "model.safetensors").stat().st_size
    assert json.loads(generate(tmp_path / "small", "--prompt", "3 plus ", "--tokens", 5, "--json").stdout)["tokens"] > 0
