# SPDX-License-Identifier: Apache-2.0
"""torch.compile: the model as one graph, compiled once for all batch sizes and lengths. About a minute on a CPU, most of it the compiler's."""

import time

import torch
import torch.nn.functional as F

from hkt.config import ModelConfig
from hkt.nn import LanguageModel

config = ModelConfig(kind="language", mask="causal", positions="rotary", filter="depthwise", kernel_size=4, width=64, blocks=2, dropout=0.0)
model = LanguageModel(config)
compiled = torch.compile(model, fullgraph=True, dynamic=True)


def gradients(forward: object, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the gradient of the embedding."""
    assert callable(forward)
    model.zero_grad()
    logits = forward(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    assert model.embedding.weight.grad is not None
    return loss.detach(), model.embedding.weight.grad


if __name__ == "__main__":
    for batch, length in ((2, 100), (3, 333), (4, 256)):
        tokens = torch.randint(256, (batch, length + 1))
        begin = time.perf_counter()
        fast = gradients(compiled, tokens)
        seconds = time.perf_counter() - begin
        torch.testing.assert_close(fast, gradients(model, tokens))
        print(f"{batch} × {length} tokens: the loss and the gradients of the eager model, {seconds:.2f} s")
