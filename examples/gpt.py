# SPDX-License-Identifier: Apache-2.0
"""A small GPT of one's own around hkt's attention: trained on some of Python's library, byte by byte, then decoding with caches.

A quarter of a minute on a CPU. Positions are rotary, inside the attention: the model needs no others.
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hkt.cache import AttentionState
from hkt.nn import HierarchicalAttention

VOCAB, LENGTH, BATCH, STEPS = 256, 128, 16, 200


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = HierarchicalAttention(width, heads, causal=True, positions="rotary", filter="depthwise", kernel_size=4)
        self.feedforward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, state: AttentionState | None) -> Tensor:
        normed = self.attention_norm(x)
        x = x + (self.attention(normed) if state is None else state.extend(normed))
        return x + self.feedforward(self.feedforward_norm(x))


class GPT(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens: Tensor, states: list[AttentionState] | None = None) -> Tensor:
        """The logits of each next token, [B, T, VOCAB]; with states, the tokens go on from those that the states have seen."""
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = block(x, None if states is None else states[i])
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, prompt: Tensor, count: int, temperature: float) -> tuple[Tensor, Tensor]:
        """The prompt [B, n] and `count` tokens more, and the logits that they were drawn from: the prompt in one pass, then a step a token."""
        capacity = prompt.size(1) + count
        states = [AttentionState(block.attention, len(prompt), capacity) for block in self.blocks if isinstance(block, Block)]
        tokens, new, logits = prompt, prompt, []
        for _ in range(count):
            logits.append(self(new, states)[:, -1])
            new = torch.multinomial((logits[-1] / temperature).softmax(1), 1)
            tokens = torch.cat([tokens, new], 1)
        return tokens, torch.stack(logits, 1)


def train(model: GPT, text: Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    windows = text.unfold(0, LENGTH + 1, 1)
    for step in range(STEPS):
        tokens = windows[torch.randint(len(windows), (BATCH,))].long()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: {loss.item():.2f} nats a byte", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = GPT()
    train(model, torch.tensor(list(Path(argparse.__file__).read_bytes()), dtype=torch.uint8))
    prompt = torch.tensor([list(b"    def __init__(self"), list(b"    if not isinstance")])
    begin = time.perf_counter()
    tokens, logits = model.generate(prompt, 200, temperature=0.5)
    print(f"{(time.perf_counter() - begin) / 200 * 1000:.1f} ms a token")
    with torch.no_grad():  # one pass over all tokens, without caches
        torch.testing.assert_close(logits, model(tokens)[:, prompt.size(1) - 1 : -1], rtol=1e-3, atol=1e-3)
    for text in tokens.tolist():
        print("-" * 80, bytes(text).decode(errors="replace"), sep="\n")
