# SPDX-License-Identifier: Apache-2.0
"""Runs the program hkt as a user would, on a tiny task that trains in a second or two."""
import json
import os
import subprocess
import time

from conftest import build

# Small enough for many runs, large enough for several checkpoints and validation at the end of each epoch.
TINY = [
    "model.width=16", "model.heads=2", "model.feedforward=16", "model.blocks=1", "model.max_length=64",
    "data.train_samples=320", "data.validation_samples=64", "data.test_samples=64", "data.max_tokens=64",
    "train.batch=16", "train.epochs=3",
]


def command(*arguments):
    return [str(build / "hkt"), *map(str, arguments)]


def environment(**variables):
    return {**os.environ, "OMP_WAIT_POLICY": "passive", **{name: str(value) for name, value in variables.items()}}


def run(*arguments, data=None, **options):
    """The finished process, with its output as text."""
    variables = {"HKT_DATA": data} if data else {}
    return subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(**variables), timeout=300, **options)


def train_arguments(folder, *changes, preset="listops", device="cpu"):
    return ["train", preset, "--threads", 1, "--device", device, "--out", folder, "--set", *TINY, *changes]


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def wait_until(condition, process, seconds=60):
    """Until this process, which must not end before, has made it true; the seconds are there for what would never come."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"it ended with exit code {process.returncode} before it came to pass"
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


def refused(process, *words, code=2):
    """One sentence on standard error that holds these words, and this exit code."""
    lines = process.stderr.strip().splitlines()
    assert process.returncode == code, process.stderr
    assert len(lines) == 1 and lines[0].startswith("hkt: "), process.stderr
    for word in words:
        assert str(word) in lines[0], f"{word!r} is not in: {lines[0]}"
