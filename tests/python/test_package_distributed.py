# SPDX-License-Identifier: Apache-2.0
"""Several processes train as one does: DDP and FSDP2 under torchrun, with Gloo."""
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import train_sharded
from program import environment

import hkt
from hkt.nn import LanguageModel

root = Path(__file__).resolve().parents[2]


def torchrun(processes, script, *arguments):
    process = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), script, *map(str, arguments)],
        env=environment(OMP_NUM_THREADS=1), capture_output=True, text=True, timeout=200)
    assert process.returncode == 0, process.stderr
    return process


def test_ddp_has_the_losses_of_one_process():
    losses = {}
    for processes in (1, 2):
        output = torchrun(processes, root / "examples" / "ddp.py").stdout
        losses[processes] = [float(loss) for loss in re.findall(rf"^step \d+: ([0-9.]+) nats a byte, {processes} processes$", output, re.M)]
    assert len(losses[1]) == 10 and losses[2] == pytest.approx(losses[1], abs=2e-4)  # of four decimals
    assert losses[1][-1] < losses[1][0] - 1


@pytest.mark.parametrize("processes", [1, 2])
def test_fsdp_has_the_losses_of_an_ordinary_model(processes, tmp_path):
    torch.manual_seed(0)
    model = LanguageModel(train_sharded.CONFIG)
    expected = torch.stack(list(train_sharded.losses_of(model)))
    process = torchrun(processes, train_sharded.__file__, tmp_path)
    torch.testing.assert_close(torch.tensor([float(line) for line in process.stdout.split()]), expected, rtol=1e-5, atol=1e-5)
    assert process.stderr.count("model is sharded; gather its weights") == processes
    saved = dict(hkt.load(tmp_path).named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(saved[name], parameter, rtol=1e-3, atol=1e-4)
