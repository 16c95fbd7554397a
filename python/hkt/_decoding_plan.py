# SPDX-License-Identifier: Apache-2.0
"""Where the rows of one decoding call come from and go to: lists of indices, the same for every layer, computed on the host.

Level l has rows for the positions 0, 2^l, 2 · 2^l, … Recent rows lie in a ring, row m at place m modulo its size; behind the ring are
a row of zeros, which stands for rows before the sequence, and one for rows that are not kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from hkt._operators import level_rows
from hkt.config import ModelConfig

LONGEST_CALL = 512  # a call appends at most so many tokens to a sequence


def _rows_up_to(position: Tensor, level: int) -> Tensor:
    """How many rows of a level begin before a position; negative positions are padding before the sequence."""
    return (position + (1 << level) - 1) >> level


class Sizes(NamedTuple):
    config: ModelConfig
    batch: int
    capacity: int
    take_back: int
    longest_call: int

    def ring_rows(self, level: int) -> int:
        taps = max(self.config.kernel_size, self.config.convolution_taps if level == 0 else 0)
        return taps + level_rows(self.take_back, level) + level_rows(self.longest_call, level) + 1

    def ring_places(self, level: int) -> int:
        return self.ring_rows(level) + 2


class LevelPlan(NamedTuple):
    """A call adds to sequence b the rows of positions ends[b] − n … ends[b] − 1 that are multiples of 2^l.

    There is room for `rows` of them in each sequence; the rest belong nowhere. Levels that gain no row only have queries.
    """

    rows: int
    positions: Tensor  # [B, rows], of each row in its sequence; 0 for those that belong nowhere
    ring: Tensor  # [B · rows], where they are written in the ring
    cache: Tensor  # [B · rows · key heads], where their keys are written, row by row
    window: Tensor  # [B · rows · taps], the rows of the ring below that the filter reads
    queries: Tensor  # [B · query_rows], the rows of the ring of queries that attention reads
    query_rows: int


class Plan(NamedTuple):
    queries: int  # n
    levels: int  # how many levels gain rows
    level: list[LevelPlan]
    ends: Tensor  # [B]
    convolution_window: Tensor  # [B · n · taps], in the ring of level 0
    start: int | None  # the position of the first token, if it is the same in all sequences

    @classmethod
    def make(cls, sizes: Sizes, ends: list[int], n: int, device: torch.device) -> "Plan":
        """n tokens are appended, so that the sequences have the lengths `ends`."""
        if torch.device("cpu") != device:
            return _made(sizes, ends, n, lambda index: index.pin_memory().to(device, non_blocking=True))
        return _made(sizes, ends, n, lambda index: index)


def _made(sizes: Sizes, ends: list[int], n: int, send: Callable[[Tensor], Tensor]) -> Plan:
    config = sizes.config
    end = torch.tensor(ends)[:, None]
    batch = torch.arange(len(ends))[:, None]
    nothing = send(torch.empty(0, dtype=torch.int64))

    def places(level: int, rows: Tensor, keep: Tensor, otherwise: int) -> Tensor:
        """Of rows [B, …] in the ring; those not to keep go to, or come from, one of the two rows behind it."""
        size = sizes.ring_rows(level)
        sequence = batch.view(-1, *[1] * (rows.dim() - 1)) * sizes.ring_places(level)
        return send((sequence + torch.where(keep, rows % size, size + otherwise)).flatten())

    def window(level: int, below: int, rows: Tensor, keep: Tensor, taps: int) -> Tensor:
        source = (rows[:, :, None] << (level - below)) - torch.arange(taps)
        return places(below, source, keep[:, :, None] & (source >= 0), 0)

    plans, levels, convolution = [], 0, nothing
    for level in range(config.levels):
        count, first = _rows_up_to(end, level), _rows_up_to(end - n, level)
        rows = first + torch.arange(level_rows(n, level))
        keep = (rows >= 0) & (rows < count)
        query_rows = 0 if level == 0 else ((n + (1 << level) - 2) >> level) + 1
        wanted = ((end - n) >> level) + torch.arange(query_rows)
        queries = places(level, wanted, (wanted >= 0) & (wanted < count), 0) if level > 0 else nothing
        if not bool(keep.any()) and level > 0:
            plans.append(LevelPlan(0, nothing, nothing, nothing, nothing, queries, query_rows))
            continue
        levels = level + 1
        capacity = level_rows(sizes.capacity, level)
        heads = batch[:, :, None] * config.key_head_count + torch.arange(config.key_head_count)
        plans.append(
            LevelPlan(
                rows.size(1),
                send(torch.where(keep, rows << level, 0)),
                places(level, rows, keep, 1),
                send((heads * (capacity + 1) + torch.where(keep, rows, capacity)[:, :, None]).flatten()),
                window(level, level - 1, rows, keep, config.kernel_size) if level > 0 else nothing,
                queries,
                query_rows,
            )
        )
        if level == 0 and config.short_convolution != "none":
            convolution = window(0, 0, rows, keep, config.convolution_taps)
    together = all(one == ends[0] for one in ends) and ends[0] >= n
    return Plan(n, levels, plans, send(end[:, 0].clone()), convolution, ends[0] - n if together else None)
