# SPDX-License-Identifier: Apache-2.0
"""python -m hkt: what was built, this machine, and which kernels will run."""

import argparse
import json
import platform
from pathlib import Path

import torch

import hkt


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "unknown")


def why_no_cuda() -> str | None:
    if not torch._C._dispatch_has_kernel_for_dispatch_key("hkt::attention", "CUDA"):
        reason = torch.ops.hkt.build()["without_cuda"]
        return "this build has no CUDA support" + (f": {reason}" if reason else "")
    if not torch.cuda.is_available():
        return "this machine has no GPU that torch can use"
    return None


def facts() -> dict[str, object]:
    build = torch.ops.hkt.build()
    reason = why_no_cuda()
    return {
        "version": build["version"],
        "torch": build["torch"],
        "library": str(hkt.library),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "cpu_kernels": build["cpu_kernels"],
        "cuda": reason is None,
        "cuda_reason": reason or "built with CUDA, and a GPU is available",
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hkt", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    all_facts = facts()
    if options.json:
        print(json.dumps(all_facts, indent=2))
        return
    print(f"hkt {all_facts['version']}, torch {all_facts['torch']}")
    print(f"library     {all_facts['library']}")
    print(f"processor   {all_facts['processor']}, {all_facts['threads']} threads")
    print(f"CPU kernels {all_facts['cpu_kernels']}")
    print(f"CUDA        {'yes' if all_facts['cuda'] else 'no'}: {all_facts['cuda_reason']}")
    gpus = all_facts["gpus"]
    print(f"GPU         {', '.join(gpus) if isinstance(gpus, list) and gpus else 'none'}")


if __name__ == "__main__":
    main()
