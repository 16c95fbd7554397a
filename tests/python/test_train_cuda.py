# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU through the program: equal bits when asked for, killed and resumed runs, and results like the CPU's."""
import json
import signal
import subprocess

import pytest
import torch
from program import command, environment, metrics, refused, run, train_arguments, wait_until
from safetensors.torch import load_file

EVERY_STEP = "train.checkpoint_seconds=0"
DETERMINISTIC = "train.deterministic=true"
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def trained(folder, data, *changes, device="cuda"):
    process = run(*train_arguments(folder, *changes, device=device), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def same_model(a, b):
    a, b = load_file(a / "model.safetensors"), load_file(b / "model.safetensors")
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@on_gpu
def test_two_deterministic_runs_reach_the_same_bits(tmp_path, data):
    first, second = (trained(tmp_path / name, data, DETERMINISTIC) for name in ("a", "b"))
    assert same_model(first, second)
    start = metrics(first)[0]
    assert start["device"].startswith("cuda") and start["precision"] == "bfloat16"


@on_gpu
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, data):
    whole = trained(tmp_path / "whole", data, DETERMINISTIC, EVERY_STEP)
    folder = tmp_path / "killed"
    arguments = train_arguments(folder, DETERMINISTIC, EVERY_STEP, device="cuda")
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=environment(HKT_DATA=data))
    wait_until((folder / "state.safetensors").exists, process)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    assert run("train", "--resume", folder, data=data).returncode == 0
    assert same_model(whole, folder)


@on_gpu
def test_it_learns_as_the_cpu_does(tmp_path, data):
    losses = []
    for device in ("cpu", "cuda"):
        folder = trained(tmp_path / device, data, device=device)
        losses.append([line["train_loss"] for line in metrics(folder) if line["event"] == "epoch"][-1])
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    evaluated = run("eval", tmp_path / "cpu", "--device", "cuda", "--json", data=data)
    assert evaluated.returncode == 0, evaluated.stderr
    on_cpu = run("eval", tmp_path / "cpu", "--device", "cpu", "--json", data=data)
    assert json.loads(evaluated.stdout)["loss"] == pytest.approx(json.loads(on_cpu.stdout)["loss"], rel=0.02)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_run_of_a_gpu_is_not_silently_moved(tmp_path, data):
    folder = trained(tmp_path / "run", data, device="cpu")
    config = json.loads((folder / "config.json").read_text())
    assert config["train"]["device"] == "cpu"
    config["train"]["device"] = "cuda"
    (folder / "config.json").write_text(json.dumps(config))
    refused(run("train", "--resume", folder, data=data), "train.device is \"cuda\"", "--device cpu")
