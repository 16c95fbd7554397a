#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hkt.nn.HierarchicalAttention beside torch's own modules of the same sizes: time of a forward pass, and of forward and backward.

usage: bench/modules.py [--device cpu] [--out results/bench-modules-cuda] [--quick]

All are attention layers of the same width, causal and without biases: nn.MultiheadAttention; a layer written around
scaled_dot_product_attention, which is what people write; flash-attn's, where it is installed; and HierarchicalAttention of several
levels. They take turns in every round, so that a busy machine slows all of them; figures are medians of the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hkt

Step = Callable[[Tensor], Tensor]


class Standard(nn.Module):
    """Projections around scaled_dot_product_attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(out.transpose(1, 2).flatten(2))


class TorchsOwn(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, bias=False, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, attn_mask=self.mask.to(x.dtype), is_causal=True, need_weights=False)[0]


class FlashAttention(nn.Module):
    """The same layer around flash_attn_func."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        from flash_attn import flash_attn_func

        self.attention, self.heads = flash_attn_func, heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.output(self.attention(q, k, v, causal=True).flatten(2))


def modules(width: int, heads: int, length: int) -> dict[str, nn.Module]:
    def hierarchical(levels: int, **options: object) -> nn.Module:
        return hkt.nn.HierarchicalAttention(width, heads, levels, causal=True, **options)

    found = {"standard, SDPA": Standard(width, heads), "nn.MultiheadAttention": TorchsOwn(width, heads, length)}
    try:
        found["flash-attn"] = FlashAttention(width, heads)
    except ImportError:
        pass
    depthwise = {"filter": "depthwise", "kernel_size": 4}
    return found | {
        "HKT, L = 1": hierarchical(1),
        "HKT, L = 3": hierarchical(3),
        "HKT, L = 3, depthwise filters": hierarchical(3, **depthwise),
        "HKT, L = 5, depthwise filters": hierarchical(5, **depthwise),
    }


def forward_of(module: nn.Module) -> Step:
    def step(x: Tensor) -> Tensor:
        with torch.no_grad():
            return module(x)

    return step


def training_of(module: nn.Module) -> Step:
    def step(x: Tensor) -> Tensor:
        out = module(x.requires_grad_())
        out.backward(torch.ones_like(out))
        for parameter in module.parameters():
            parameter.grad = None
        x.grad = None
        return out

    return step


def seconds_of(step: Step, x: Tensor, calls: int) -> float:
    """Of one call; of several in a row, so that a GPU does not wait for the host."""
    wait = torch.cuda.synchronize if x.is_cuda else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        step(x)
    wait()
    return (time.perf_counter() - begin) / calls


def medians(steps: dict[str, Step], x: Tensor, rounds: int) -> dict[str, float]:
    for step in steps.values():  # the first calls choose kernels and allocate
        seconds_of(step, x, 2)
    calls = max(1, min(50, int(0.05 / seconds_of(next(iter(steps.values())), x, 1))))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(seconds_of(step, x, calls))
    return {name: statistics.median(values) for name, values in times.items()}


def table(device: str, quick: bool) -> dict[str, object]:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shapes = [(32, 1024, 512, 8), (8, 4096, 512, 8), (2, 16384, 512, 8), (8, 4096, 1024, 8)] if device == "cuda" else [(8, 512, 256, 4), (2, 2048, 256, 4)]
    rows = []
    for batch, length, width, heads in shapes[:1] if quick else shapes:
        torch.manual_seed(0)
        layers = {name: module.to(device, dtype) for name, module in modules(width, heads, length).items()}
        x = torch.randn(batch, length, width, device=device, dtype=dtype)
        rounds = 3 if quick else 15
        forward = medians({name: forward_of(module) for name, module in layers.items()}, x, rounds)
        training = medians({name: training_of(module) for name, module in layers.items()}, x, rounds)
        first = next(iter(layers))
        for name in layers:
            both = [f"{1e3 * times[name]:.3f}" for times in (forward, training)]
            ratios = [f"{times[name] / times[first]:.3f}" for times in (forward, training)]
            rows.append([f"{batch}, {length}, {width}, {heads}", name, *both, *ratios])
    columns = ["B, T, width, heads", "layer", "forward ms", "forward+backward ms", "forward to SDPA", "forward+backward to SDPA"]
    name = "bf16" if dtype == torch.bfloat16 else "float32"
    return {"title": f"An attention layer in Python, {'CUDA' if device == 'cuda' else 'CPU'}, {name}, causal", "columns": columns, "rows": rows}


def where() -> dict[str, object]:
    commit = os.environ.get("HKT_COMMIT") or subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "commit": commit or "unknown",
        "version": hkt.__version__,
        "torch": torch.__version__.split("+")[0],
        "date": time.strftime("%Y-%m-%d"),
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="writes OUT.json")
    parser.add_argument("--quick", action="store_true", help="one shape, few rounds")
    options = parser.parse_args()
    result = table(options.device, options.quick)
    print(result["title"])
    for row in [result["columns"], *result["rows"]]:
        print("  ".join(f"{cell:>{30 if i == 1 else 22}}" for i, cell in enumerate(row)))
    if options.out:
        text = json.dumps({"command": "bench/modules.py", "where": where(), "tables": [result]}, indent=1, ensure_ascii=False)
        Path(f"{options.out}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
