# SPDX-License-Identifier: Apache-2.0
"""An encoder of PyTorch's own parts with hkt's attention in place of nn.MultiheadAttention.

The task: does a sequence hold "ab" or "ba", a few times, among other letters? Without positions standard attention cannot tell,
because it sees a bag of letters; the coarse levels of HKT see pairs. Some seconds on a CPU.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hkt.nn import HierarchicalAttention

LETTERS, LONGEST, PAIRS = 8, 64, 4


class EncoderLayer(nn.Module):
    """What nn.TransformerEncoderLayer(norm_first=True) computes, with another attention."""

    def __init__(self, width: int, heads: int, levels: int) -> None:
        super().__init__()
        self.attention_norm, self.feedforward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = HierarchicalAttention(width, heads, levels)
        self.feedforward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), key_padding_mask=key_padding_mask)
        return x + self.feedforward(self.feedforward_norm(x))


class Encoder(nn.Module):
    def __init__(self, levels: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, width)
        self.layer = EncoderLayer(width, heads=2, levels=levels)
        self.head = nn.Linear(width, 2)

    def forward(self, letters: Tensor, padding: Tensor) -> Tensor:
        x = self.layer(self.embedding(letters), padding)
        return self.head(x.masked_fill(padding[:, :, None], 0).sum(1) / (~padding).sum(1, keepdim=True))


def examples(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Letters [count, LONGEST], where they are padding, and the answers. The letters 0 and 1 stand in pairs alone."""
    letters = torch.randint(2, LETTERS, (count, LONGEST), generator=generator)
    answers = torch.randint(2, (count,), generator=generator)
    slots = torch.rand(count, LONGEST // 4 - 1, generator=generator).argsort(1)[:, :PAIRS]  # of two letters, in the half that none lacks
    places = 2 * slots + torch.randint(2, (count, 1), generator=generator)
    letters.scatter_(1, places, answers[:, None].expand(-1, PAIRS))
    letters.scatter_(1, places + 1, 1 - answers[:, None].expand(-1, PAIRS))
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (count, 1), generator=generator)
    return letters, torch.arange(LONGEST) >= lengths, answers


def accuracy_of(levels: int, steps: int = 150) -> float:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = Encoder(levels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        letters, padding, answers = examples(64, generator)
        loss = F.cross_entropy(model(letters, padding), answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        letters, padding, answers = examples(1000, generator)
        return (model(letters, padding).argmax(1) == answers).double().mean().item()


if __name__ == "__main__":
    for levels in (1, 3):
        print(f"{levels} levels: {100 * accuracy_of(levels):.1f} % of 1,000 new sequences")
