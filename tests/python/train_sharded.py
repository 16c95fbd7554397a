# SPDX-License-Identifier: Apache-2.0
"""Not a test itself: trains a few steps under torchrun with FSDP2, each process on its share of a batch, and prints the losses.

usage: torchrun --nproc-per-node N tests/python/train_sharded.py FOLDER     writes the model into FOLDER
"""
import gc
import sys

import torch
import torch.nn.functional as F

import hkt
from hkt.config import ModelConfig
from hkt.nn import LanguageModel

CONFIG = ModelConfig(kind="language", mask="causal", positions="rotary", width=16, heads=2, blocks=2, feedforward=16, vocab=16, tied=True,
                     short_convolution="depthwise", max_length=64, dropout=0.0)


def losses_of(model, rank=0, processes=1, steps=4):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        tokens = torch.randint(CONFIG.vocab, (4, 22), generator=generator)[rank::processes]
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def main():
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (processes,))
    torch.manual_seed(0)
    model = LanguageModel(CONFIG)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for loss in losses_of(model, rank, processes):
        dist.all_reduce(loss)
        if rank == 0:
            print(loss.item() / processes, flush=True)
    try:
        hkt.save(model, sys.argv[1])
    except TypeError as error:
        print(error, file=sys.stderr)
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        whole = LanguageModel(CONFIG)
        whole.load_state_dict(weights)
        hkt.save(whole, sys.argv[1])
    # FSDP's model refers to the process group in a circle. While that lives, Gloo's threads do, too, and one that ends a piece of
    # work when Python has begun to shut down ends the process ("terminate called without an active exception").
    del model, mesh, weights
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
