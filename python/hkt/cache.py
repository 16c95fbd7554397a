# SPDX-License-Identifier: Apache-2.0
"""Decoding: sequences that grow token by token, with what a layer or a language model keeps of them.

Level l gains row m when token m · 2^l arrives, and that row never changes. So a layer keeps the keys of all levels and the values of
every token, the last inputs of each filter, the current coarse queries, and the scores of `hkt.decode` where they are fewer bytes
than the keys they spare. The coarse grid begins at a sequence's first token: without it, the rest is another sequence.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from hkt import _positions
from hkt._decoding_plan import LONGEST_CALL, LevelPlan, Plan, Sizes
from hkt._operators import attention, attention_extend, decode, level_rows
from hkt.config import ModelConfig
from hkt.nn import Block, Downsample, HierarchicalAttention, LanguageModel, autocast_dtype, check_tokens

__all__ = ["AttentionState", "DecodingState"]

_LEAST_PASS = 64  # queries from which hkt.attention takes less time than hkt.attention_extend


def _filtered(window: Tensor, weight: Tensor) -> Tensor:
    """Σ_r window[:, :, r] · weight[r], from [B, rows, taps, channels]."""
    return window.flatten(2) @ weight.flatten(0, 1) if weight.dim() == 3 else (window * weight).sum(2)


def _should_keep_scores(config: ModelConfig, element_bytes: int) -> bool:
    """Whether hkt.decode reads fewer bytes a step, on average, than hkt.attention_extend.

    Its scores are float32 and belong to query heads, keys to key heads.
    """
    key, score = config.key_head_count * config.head_width * element_bytes, 4 * config.heads
    keys = sum(2.0**-level * key for level in range(1, config.levels))
    kept = sum(4.0**-level * (key + 2 * score) for level in range(1, config.levels))
    return kept < keys


class _LayerCache:
    """The tensors of one layer."""

    def __init__(self, sizes: Sizes, like: Tensor) -> None:
        config, batch, levels = sizes.config, sizes.batch, range(sizes.config.levels)
        projected = config.filter_on == "projected"
        channels = (config.heads + config.key_head_count) * config.head_width if projected else config.width

        def ring(level: int, channels: int) -> Tensor:
            return like.new_zeros(batch * sizes.ring_places(level), channels)

        keeps = config.levels > 1 and _should_keep_scores(config, like.element_size())
        scores = like.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
        self.k = [self._rows(sizes, level, like) for level in levels]
        self.v = self._rows(sizes, 0, like)
        self.coarse = [scores.new_zeros(batch, config.heads, level_rows(sizes.capacity, level)) for level in levels[1:] if keeps]
        self.inputs = [ring(level, channels) for level in levels[:-1]]  # of each filter
        self.q = [ring(level, config.width) for level in levels[1:]]
        self.convolution_inputs = None if config.short_convolution == "none" else ring(0, config.width)

    @staticmethod
    def _rows(sizes: Sizes, level: int, like: Tensor) -> Tensor:
        """[B, key heads, rows, head width]; one more row is for those that are not kept."""
        config = sizes.config
        return like.new_zeros(sizes.batch, config.key_head_count, level_rows(sizes.capacity, level) + 1, config.head_width)

    def grow(self, sizes: Sizes) -> None:
        def larger(old: Tensor, new: Tensor, rows: int) -> Tensor:
            new[:, :, :rows] = old[:, :, :rows]
            return new

        for level, old in enumerate(self.k):
            self.k[level] = larger(old, self._rows(sizes, level, old), old.size(2) - 1)
        self.v = larger(self.v, self._rows(sizes, 0, self.v), self.v.size(2) - 1)
        for i, scores in enumerate(self.coarse):
            self.coarse[i] = larger(scores, scores.new_zeros(*scores.shape[:2], level_rows(sizes.capacity, i + 1)), scores.size(2))

    def reorder(self, index: Tensor, batch: int) -> None:
        def ring(old: Tensor) -> Tensor:
            return torch.unflatten(old, 0, (batch, -1))[index].flatten(0, 1)

        self.k = [k[index] for k in self.k]
        self.v = self.v[index]
        self.coarse = [scores[index] for scores in self.coarse]
        self.inputs = [ring(old) for old in self.inputs]
        self.q = [ring(old) for old in self.q]
        if self.convolution_inputs is not None:
            self.convolution_inputs = ring(self.convolution_inputs)


class _LayerCall:
    """One layer of one call: the rows of new tokens go into the cache, and their queries attend to it."""

    def __init__(self, layer: HierarchicalAttention, cache: _LayerCache, plan: Plan, rotations: list[Tensor] | None) -> None:
        self.layer, self.cache, self.plan, self.rotations = layer, cache, plan, rotations
        self.config, self.dtype = layer.config, cache.v.dtype

    def run(self, x: Tensor, stale: bool) -> Tensor:
        """x [B, n, width] to the layer's output, the same shape; stale: kept scores are not those of the token before."""
        mixed = self._convolved(x)
        values = self.layer.values(x, mixed)
        self._write(self.cache.v, self.plan.level[0], values)
        return self.layer.merge(self._attended(self._queries(mixed), stale))

    def _write(self, cache: Tensor, plan: LevelPlan, rows: Tensor) -> None:
        """rows [B, key heads, R, head width]."""
        heads_last = rows.transpose(1, 2).reshape(-1, self.config.head_width)
        cache.view(-1, self.config.head_width).index_copy_(0, plan.cache, heads_last.to(self.dtype))

    def _in_ring(self, ring: Tensor, plan: LevelPlan, rows: Tensor) -> None:
        ring.index_copy_(0, plan.ring, rows.flatten(0, 1).to(self.dtype))

    def _convolved(self, x: Tensor) -> Tensor:
        convolution, ring = self.layer.convolution, self.cache.convolution_inputs
        if convolution is None or ring is None:
            return x
        self._in_ring(ring, self.plan.level[0], x)
        y = _filtered(ring[self.plan.convolution_window].view(*x.shape[:2], convolution.taps, -1), convolution.weight)
        return y if convolution.kind == "dense" else x + y

    def _new_rows(self, x: Tensor) -> list[Tensor]:
        """Of all levels that gain rows: the inputs, or with filter_on "projected" queries and keys, [B, R, channels]."""
        config = self.config
        rows = [self.layer.project(x, 0) if config.filter_on == "projected" else x]
        for level in range(1, config.levels):
            ring = self.cache.inputs[level - 1]
            self._in_ring(ring, self.plan.level[level - 1], rows[-1])
            if level >= self.plan.levels:
                break
            plan, filter = self.plan.level[level], self.layer.filters[str(level)]
            assert isinstance(filter, Downsample)
            window = ring[plan.window].view(x.size(0), plan.rows, config.kernel_size, -1)
            rows.append(_filtered(window, filter.taps(window)))
        return rows

    def _projected(self, rows: list[Tensor]) -> Sequence[Tensor]:
        if self.config.filter_on == "projected":
            return rows
        if self.config.projections == "per_level":
            return [self.layer.project(level_rows, level) for level, level_rows in enumerate(rows)]
        together = self.layer.project(torch.cat(rows, 1), 0)  # one product for all levels
        return torch.split_with_sizes(together, [level_rows.size(1) for level_rows in rows], 1)

    def _queries(self, x: Tensor) -> list[Tensor]:
        """Writes the new keys; returns the queries of all levels as the operators take them."""
        config, queries = self.config, []
        for level, rows in enumerate(self._projected(self._new_rows(x))):
            plan = self.plan.level[level]
            q, k = self.layer.split(rows, level, self.rotations[level] if self.rotations is not None else None)
            self._write(self.cache.k[level], plan, k)
            if level == 0:
                queries.append(q.to(self.dtype))
            else:
                self._in_ring(self.cache.q[level - 1], plan, q.transpose(1, 2).flatten(2))
        for plan, ring in zip(self.plan.level[1:], self.cache.q, strict=True):
            kept = ring[plan.queries].view(x.size(0), plan.query_rows, config.heads, config.head_width)
            queries.append(kept.transpose(1, 2))
        return queries

    def _attended(self, q: list[Tensor], stale: bool) -> Tensor:
        cache, plan, weights = self.cache, self.plan, self.layer.weights()
        if plan.start is not None and plan.queries >= _LEAST_PASS:  # equally long sequences: the host knows how long
            end = plan.start + plan.queries
            rows = [level_rows(end, level) for level in range(self.config.levels)]
            seen = [own[:, :, : count - (plan.start >> level)] for level, (own, count) in enumerate(zip(q, rows, strict=True))]
            k = [own[:, :, :count] for own, count in zip(cache.k, rows, strict=True)]
            return attention(seen, k, cache.v[:, :, :end], weights, causal=True, start=plan.start)[0]
        k, v = [own[:, :, :-1] for own in cache.k], cache.v[:, :, :-1]
        if plan.queries == 1 and cache.coarse:
            return decode(q, k, v, weights, plan.ends, cache.coarse, refresh=stale)[0]
        return attention_extend(q, k, v, weights, plan.ends)[0]


class _Sequences:
    """What both states share: how long the sequences are, and the caches of some layers."""

    def __init__(self, config: ModelConfig, weight: Tensor, layers: int, batch: int, capacity: int, take_back: int) -> None:
        name = type(self).__name__
        if config.mask != "causal":
            raise ValueError(f'mask is "{config.mask}"; {name} needs a causal one, since later tokens may not change earlier ones.')
        if batch < 1:
            raise ValueError(f"batch is {batch}; {name} needs at least 1.")
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; {name} needs at least 1.")
        if take_back < 0:
            raise ValueError(f"take_back is {take_back}; it must be at least 0.")
        self._sizes = Sizes(config, batch, capacity, take_back, min(capacity, LONGEST_CALL))
        self._lengths = [0] * batch
        self._longest = [0] * batch  # that each sequence has had
        self._stale = True  # kept scores are not those of the last token
        with torch.inference_mode(False), torch.no_grad():  # a state may outlive inference_mode
            like = torch.empty(0, dtype=autocast_dtype(weight), device=weight.device)
            self._layers = [_LayerCache(self._sizes, like) for _ in range(layers)]

    @property
    def lengths(self) -> list[int]:
        """The tokens of each sequence."""
        return list(self._lengths)

    @property
    def batch(self) -> int:
        return self._sizes.batch

    @property
    def capacity(self) -> int:
        """The tokens for which there is room in each sequence."""
        return self._sizes.capacity

    @property
    def take_back(self) -> int:
        """How many tokens below the longest length that a sequence has had it may be truncated."""
        return self._sizes.take_back

    def truncate(self, lengths: Sequence[int]) -> None:
        """Takes back tokens, so that sequence b has lengths[b] left."""
        self._check_count(lengths)
        for b, (length, now, longest) in enumerate(zip(lengths, self._lengths, self._longest, strict=True)):
            if not 0 <= length <= now:
                raise ValueError(f"lengths contains {length}; sequence {b} has {now} tokens.")
            if length < longest - self.take_back:
                raise ValueError(
                    f"sequence {b} cannot be truncated to {length}: it has had {longest} tokens, and this state takes back at "
                    f"most {self.take_back}."
                )
        self._lengths = list(lengths)
        self._stale = True

    def clear(self) -> None:
        """Empties all sequences."""
        self._lengths = [0] * self.batch
        self._longest = [0] * self.batch
        self._stale = True

    @torch.no_grad()
    def reorder(self, index: Sequence[int] | Tensor) -> None:
        """Sequence b becomes a copy of sequence index[b], as beam search needs; there may be more or fewer than before."""
        rows = [int(row) for row in index]
        if not rows:
            raise ValueError(f"index is empty; {type(self).__name__} needs at least one sequence.")
        for row in rows:
            if not 0 <= row < self.batch:
                raise ValueError(f"index contains {row}; it must be from 0 to {self.batch - 1}.")
        there = torch.tensor(rows, device=self._layers[0].v.device)
        with torch.inference_mode(False):
            for layer in self._layers:
                layer.reorder(there, self.batch)
        self._lengths = [self._lengths[row] for row in rows]
        self._longest = [self._longest[row] for row in rows]
        self._sizes = self._sizes._replace(batch=len(rows))

    @torch.no_grad()
    def reserve(self, capacity: int) -> None:
        """Makes room for at least `capacity` tokens in each sequence; what is there stays."""
        if capacity <= self.capacity:
            return
        self._sizes = self._sizes._replace(capacity=capacity)
        with torch.inference_mode(False):
            for layer in self._layers:
                layer.grow(self._sizes)

    def _check_count(self, numbers: Sequence[int]) -> None:
        if len(numbers) != self.batch:
            raise ValueError(f"lengths has {len(numbers)} numbers; it needs {self.batch}, one per sequence.")

    def _check_real(self, counts: Sequence[int], length: int) -> None:
        self._check_count(counts)
        for b, (count, now) in enumerate(zip(counts, self._lengths, strict=True)):
            if not 0 <= count <= length:
                raise ValueError(f"lengths contains {count}; it must be from 0 to the length of the new tokens, {length}.")
            if now > 0 and count < length:
                raise ValueError(f"sequence {b} has {now} tokens; padding may only come before its first one.")

    def _pieces(self, length: int, counts: Sequence[int] | None) -> Iterator[tuple[int, list[int]]]:
        """The size of each call, and how many of its tokens are real, for so many new tokens a sequence; padding comes first."""
        if counts is None:
            counts = [length] * self.batch
        else:
            self._check_real(counts, length)
        for b, count in enumerate(counts):
            if self._lengths[b] + count > self.capacity:
                raise ValueError(
                    f"sequence {b} has {self._lengths[b]} tokens and gets {count} more; the state has room for {self.capacity}."
                )
        longest = self._sizes.longest_call
        for begin in range(0, length, longest):
            size = min(longest, length - begin)
            yield size, [min(max(begin + size - (length - count), 0), size) for count in counts]

    def _call(self, size: int, counts: list[int], run: Callable[[Plan, list[Tensor] | None], Tensor]) -> Tensor:
        """Appends `size` tokens, of which counts[b] are real, by run(plan, rotations)."""
        ends = [length + count for length, count in zip(self._lengths, counts, strict=True)]
        v = self._layers[0].v
        plan = Plan.make(self._sizes, ends, size, v.device)
        rotations = None
        if self._sizes.config.positions == "rotary":
            rotations = [
                _positions.rotations_at(level.positions, self.capacity, self._sizes.config.head_width, v)
                for level in plan.level[: plan.levels]
            ]
        result = run(plan, rotations)
        self._stale = size > 1
        self._lengths = ends
        self._longest = [max(pair) for pair in zip(ends, self._longest, strict=True)]
        return result


class AttentionState(_Sequences):
    """The caches of one causal HierarchicalAttention, for a model of one's own.

    attention: used as it is; its dtype and device must not change while the state exists.
    capacity: the tokens for which there is room in each of `batch` sequences; see reserve().
    take_back: how many tokens below the longest length that a sequence has had it may be truncated.

    >>> attention = HierarchicalAttention(32, heads=2, causal=True)
    >>> x = torch.randn(1, 10, 32)
    >>> state = AttentionState(attention, batch=1, capacity=10)
    >>> pieces = [state.extend(x[:, :7]), state.extend(x[:, 7:8]), state.extend(x[:, 8:])]
    >>> torch.allclose(torch.cat(pieces, 1), attention(x), atol=1e-5)
    True
    """

    def __init__(self, attention: HierarchicalAttention, batch: int, capacity: int, *, take_back: int = 0) -> None:
        self.attention = attention
        super().__init__(attention.config, attention.output.weight, 1, batch, capacity, take_back)

    @torch.no_grad()
    def extend(self, x: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Appends tokens [B, n, width] to all sequences; returns what attention gives for them, the same shape.

        lengths: of a batch padded on the left, the last lengths[b] tokens of row b count; the sequences must be empty then.
        """
        if x.dim() != 3 or x.size(0) != self.batch or x.size(1) < 1 or x.size(2) != self.attention.config.width:
            raise ValueError(f"x has shape {list(x.shape)}; this state needs [{self.batch}, at least 1, {self.attention.config.width}].")
        outputs, begin = [], 0
        for size, counts in self._pieces(x.size(1), lengths):
            piece = x[:, begin : begin + size]
            begin += size

            def run(plan: Plan, rotations: list[Tensor] | None, piece: Tensor = piece) -> Tensor:
                return _LayerCall(self.attention, self._layers[0], plan, rotations).run(piece, self._stale)

            outputs.append(self._call(size, counts, run))
        return torch.cat(outputs, 1)


class DecodingState(_Sequences):
    """The caches of a LanguageModel: sequences that grow, each of its own length. Its logits are those of a forward pass.

    model: used as it is (call eval() first); its dtype and device must not change while the state exists.
    capacity: the tokens for which there is room in each of `batch` sequences, at most the model's max_length.
    take_back: how many tokens below the longest length that a sequence has had it may be truncated.

    >>> model = LanguageModel(ModelConfig(kind="language", mask="causal", width=32, heads=2, positions="rotary")).eval()
    >>> tokens = torch.randint(256, (1, 10))
    >>> state = DecodingState(model, batch=1, capacity=10)
    >>> first = state.prefill(tokens[:, :9])
    >>> torch.allclose(state.step(tokens[:, 9]), model(tokens)[:, 9], atol=1e-4)
    True
    """

    def __init__(self, model: LanguageModel, batch: int, capacity: int, *, take_back: int = 0) -> None:
        self.model = model
        self._check_capacity(capacity)
        super().__init__(model.config, model.embedding.weight, model.config.blocks, batch, capacity, take_back)

    def _check_capacity(self, capacity: int) -> None:
        if capacity > self.model.config.max_length:
            raise ValueError(f"capacity is {capacity}; DecodingState takes at most the model's max_length, {self.model.config.max_length}.")

    def reserve(self, capacity: int) -> None:
        self._check_capacity(capacity)
        super().reserve(capacity)

    def _hidden(self, tokens: Tensor, counts: Sequence[int] | None) -> Iterator[Tensor]:
        if tokens.dim() != 2 or tokens.size(0) != self.batch or tokens.size(1) < 1:
            raise ValueError(f"tokens has shape {list(tokens.shape)}; this state needs [{self.batch}, at least 1].")
        device = self.model.embedding.weight.device
        if tokens.dtype != torch.int64 or tokens.device != device:
            raise ValueError(f"tokens is {tokens.dtype} on {tokens.device}; it must be int64 on {device}.")
        check_tokens(tokens, self.model.config)
        begin = 0
        for size, real in self._pieces(tokens.size(1), counts):
            piece = tokens[:, begin : begin + size]
            begin += size

            def run(plan: Plan, rotations: list[Tensor] | None, piece: Tensor = piece) -> Tensor:
                x = self.model.embedded(piece, plan.level[0].positions)
                for block, cache in zip(self.model.blocks, self._layers, strict=True):
                    assert isinstance(block, Block)
                    attended = _LayerCall(block.attention, cache, plan, rotations).run(block.attention_norm(x), self._stale)
                    x = block.after_attention(x, attended)
                return x

            yield self._call(size, real, run)

    @torch.no_grad()
    def hidden(self, tokens: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Appends tokens [B, n], int64; returns the output of the last block for them, [B, n, width].

        lengths: of a batch padded on the left, the last lengths[b] tokens of row b count; the sequences must be empty then. What
            is returned for padding means nothing.
        """
        return torch.cat(list(self._hidden(tokens, lengths)), 1)

    @torch.no_grad()
    def extend(self, tokens: Tensor) -> Tensor:
        """Appends tokens [B, n], a prompt or drafts to be verified; returns the logits after each of them, [B, n, vocab]."""
        return torch.cat([self.model.logits(x) for x in self._hidden(tokens, None)], 1)

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """Appends tokens [B, n]; returns the logits after the last one, [B, vocab]. lengths: see hidden."""
        last = tokens.new_empty(0)
        for x in self._hidden(tokens, lengths):
            last = x[:, -1:]
        return self.model.logits(last)[:, 0]

    def step(self, tokens: Tensor) -> Tensor:
        """Appends one token to every sequence, [B]; returns the logits after it, [B, vocab]."""
        if tokens.dim() != 1:
            raise ValueError(f"tokens has shape {list(tokens.shape)}; a step needs [{self.batch}].")
        return self.prefill(tokens[:, None])
