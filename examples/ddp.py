# SPDX-License-Identifier: Apache-2.0
"""Data parallel training with PyTorch's own parts: each process takes its share of a batch, gradients are averaged.

    torchrun --nproc-per-node 2 examples/ddp.py

One process or several, the losses are the same. On GPUs it uses NCCL, else Gloo.
"""

import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from hkt.config import ModelConfig
from hkt.nn import LanguageModel

BATCH, LENGTH, STEPS = 8, 128, 10  # BATCH: of all processes together


def device_of_this_process() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", torch.cuda.current_device())


def train(device: torch.device) -> None:
    rank, processes = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same start everywhere; DDP sends that of rank 0 in any case
    config = ModelConfig(kind="language", mask="causal", positions="rotary", width=64, blocks=2, max_length=LENGTH, dropout=0.0)
    model = DistributedDataParallel(LanguageModel(config).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    text = torch.tensor(list(Path(__file__).read_bytes()))
    windows = text.unfold(0, LENGTH + 1, 1)
    generator = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        rows = torch.randint(len(windows), (BATCH,), generator=generator)[rank::processes]
        tokens = windows[rows].to(device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.SUM)
        if rank == 0:
            print(f"step {step}: {mean.item() / processes:.4f} nats a byte, {processes} processes", flush=True)


def main() -> None:
    device = device_of_this_process()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    train(device)
    gc.collect()  # the model and the process group hold each other, and Gloo's threads would outlive Python
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
