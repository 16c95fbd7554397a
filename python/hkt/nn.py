# SPDX-License-Identifier: Apache-2.0
"""The modules of HKT; parameter names, options and numbers are those of the C++ modules."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hkt import _generation, _positions, _transforms
from hkt._operators import attention, downsample
from hkt.config import Convolution, ConvolutionOn, Filter, FilterOn, LevelWeights, ModelConfig, Projections, Psd

__all__ = [
    "Block",
    "Classifier",
    "Downsample",
    "HierarchicalAttention",
    "LanguageModel",
    "ShortConvolution",
    "Transformer",
    "create_model",
    "lengths_of",
]

_NOISE = 0.02  # of dense filters at the start: enough to break the symmetry between channels


def _set_to_mean(weight: Tensor) -> None:
    """Every tap of a filter counts alike."""
    if weight.dim() == 2:
        nn.init.constant_(weight, 1 / weight.size(0))
        return
    identity = torch.eye(weight.size(1), dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        weight.normal_(0, _NOISE).add_(identity, alpha=1 / weight.size(0))


class Downsample(nn.Module):
    """Causal downsampling by two, [B, T, width] to [B, ceil(T / 2), width]; at first the mean of kernel_size tokens.

    weight: [kernel_size, width, width], or if depthwise [kernel_size, width]; the filter "mean" has none.

    >>> Downsample(8)(torch.randn(2, 5, 8)).shape
    torch.Size([2, 3, 8])
    """

    weight: nn.Parameter | None

    def __init__(
        self,
        width: int,
        filter: Filter = "dense",
        kernel_size: int = 2,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width is {width}; Downsample needs at least 1.")
        if kernel_size < 1:
            raise ValueError(f"kernel_size is {kernel_size}; Downsample needs at least 1.")
        if filter not in ("dense", "depthwise", "mean"):
            raise ValueError(f'filter is "{filter}"; it must be dense, depthwise or mean.')
        self.width, self.filter, self.kernel_size = width, filter, kernel_size
        shape = (kernel_size, width, width) if filter == "dense" else (kernel_size, width)
        trains = filter != "mean"
        self.register_parameter("weight", nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if trains else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            _set_to_mean(self.weight)

    def taps(self, x: Tensor) -> Tensor:
        """The weight of each tap; x says of what type, where it is constant."""
        if self.weight is not None:
            return self.weight
        return x.new_full((self.kernel_size, self.width), 1 / self.kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        return downsample(x, self.taps(x))

    def extra_repr(self) -> str:
        return f"{self.width}, filter={self.filter!r}, kernel_size={self.kernel_size}"


class ShortConvolution(nn.Module):
    """A causal convolution at full resolution, [B, T, width] to [B, T, width], at first such that the previous token counts.

    weight: [taps, width] (depthwise), y[t] = x[t] + Σ_r x[t − r] · weight[r], at first x[t] + x[t − 1];
        [taps, width, width] (dense), y[t] = Σ_r x[t − r] · weight[r], at first the mean of the taps.

    >>> ShortConvolution(1, taps=2)(torch.tensor([[[1.0], [2.0], [3.0]]])).flatten().tolist()
    [1.0, 3.0, 5.0]
    """

    def __init__(
        self,
        width: int,
        kind: Convolution = "depthwise",
        taps: int = 4,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width is {width}; ShortConvolution needs at least 1.")
        if taps < 2:
            raise ValueError(f"taps is {taps}; ShortConvolution needs at least 2.")
        if kind not in ("depthwise", "dense"):
            raise ValueError(f'kind is "{kind}"; it must be depthwise or dense.')
        self.width, self.kind, self.taps = width, kind, taps
        shape = (taps, width, width) if kind == "dense" else (taps, width)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.kind == "dense":
            _set_to_mean(self.weight)
            return
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.weight[1].fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        padded = F.pad(x, (0, 0, self.taps - 1, 0))
        y = torch.zeros_like(x) if self.kind == "dense" else x
        for tap, weight in enumerate(self.weight):
            earlier = padded.narrow(1, self.taps - 1 - tap, length)
            y = y + (earlier @ weight if self.kind == "dense" else earlier * weight.to(x.dtype))
        return y

    def extra_repr(self) -> str:
        return f"{self.width}, kind={self.kind!r}, taps={self.taps}"


def _is_autocast(x: Tensor) -> bool:
    device = x.device.type  # torch.amp.is_autocast_available, which knows all devices, cannot be compiled by torch 2.11
    return device in ("cpu", "cuda") and torch.is_autocast_enabled(device)


def autocast_dtype(x: Tensor) -> torch.dtype:
    """What autocast makes of x, or its own type."""
    if x.dtype == torch.float64 or not _is_autocast(x):
        return x.dtype
    return torch.get_autocast_dtype(x.device.type)


def _autocast_once(x: Tensor) -> Tensor:
    """Under autocast several operators would each cast the same x."""
    return x.to(autocast_dtype(x))


def _without_autocast(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast(x.device.type, enabled=False) if _is_autocast(x) else contextlib.nullcontext()


def _can_read(x: Tensor) -> bool:
    """Whether a look at the values costs nothing: neither tracing nor a synchronisation with a GPU."""
    return type(x) is Tensor and x.is_cpu and not torch.compiler.is_compiling() and not _transforms.active()


def lengths_of(key_padding_mask: Tensor) -> Tensor:
    """The valid tokens of each sequence, from a mask [B, T] that is True where there is padding, which must be on the right.

    Outside torch.compile the mask of a GPU is read, which waits for it; lengths need no such check.

    >>> lengths_of(torch.tensor([[False, False, True], [False, False, False]]))
    tensor([2, 3])
    """
    mask = key_padding_mask
    if mask.dtype != torch.bool or mask.dim() != 2:
        raise ValueError(f"key_padding_mask is {mask.dtype} {list(mask.shape)}; it must be bool, [batch, length].")
    lengths = (~mask).sum(1)
    is_right = (mask == (torch.arange(mask.size(1), device=mask.device) >= lengths[:, None])).all()
    problem = "key_padding_mask must be False for a sequence's tokens and True for padding after them."
    if torch.compiler.is_compiling():
        torch._assert_async(is_right, problem)
    elif type(mask) is Tensor and not mask.is_meta and not bool(_transforms.unwrapped(is_right).all()):
        raise ValueError(f"{problem[:-1]}: padding on the left or between tokens moves them on the coarse grid.")
    return lengths


class HierarchicalAttention(nn.Module):
    """Multi-head self-attention over the levels of a hierarchy, [B, T, width] to [B, T, width].

    levels: of which each has half the rows of the one below; 1 is standard attention.
    key_heads: heads of keys and values, shared by groups of heads; 0: as many as heads.
    filter, kernel_size: see Downsample. filter_on "projected": filters act on queries and keys instead of their input.
    short_convolution, convolution_taps: see ShortConvolution; on the input of queries and keys, or also of values ("qkv").
    projections: of queries and keys, "shared" by the levels or "per_level".
    weights: of the levels, "learned" by each head, "uniform", or the number of the one level that counts.
    psd: "free"; "tied": keys are the queries; "cone": keys are k = q · Pᵀ with P = G Gᵀ + C − Cᵀ.
    positions: "rotary" or "none".

    >>> attention = HierarchicalAttention(64, heads=4, causal=True, positions="rotary")
    >>> attention(torch.randn(2, 10, 64), lengths=torch.tensor([10, 7])).shape
    torch.Size([2, 10, 64])
    """

    convolution: ShortConvolution | None
    alpha: nn.Parameter | None

    def __init__(
        self,
        width: int,
        heads: int,
        levels: int = 3,
        *,
        key_heads: int = 0,
        causal: bool = False,
        filter: Filter = "dense",
        kernel_size: int = 2,
        filter_on: FilterOn = "input",
        short_convolution: Convolution = "none",
        convolution_taps: int = 4,
        convolution_on: ConvolutionOn = "qk",
        projections: Projections = "shared",
        weights: LevelWeights = "learned",
        psd: Psd = "free",
        positions: str = "none",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if positions not in ("none", "rotary"):
            raise ValueError(f'positions is "{positions}"; for attention it must be none or rotary.')
        try:
            self.config = ModelConfig(
                width=width,
                heads=heads,
                levels=levels,
                key_heads=key_heads,
                mask="causal" if causal else "none",
                filter=filter,
                kernel_size=kernel_size,
                filter_on=filter_on,
                short_convolution=short_convolution,
                convolution_taps=convolution_taps,
                convolution_on=convolution_on,
                projections=projections,
                weights=weights,
                psd=psd,
                positions="rotary" if positions == "rotary" else "none",
            )
        except ValueError as error:
            raise ValueError(str(error).replace("model.", "")) from None
        self._add_parameters({"device": device, "dtype": dtype})
        self._reset_own_parameters()

    @classmethod
    def from_config(cls, config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> "HierarchicalAttention":
        """The attention of a model's block."""
        return cls(
            config.width,
            config.heads,
            config.levels,
            key_heads=config.key_heads,
            causal=config.mask == "causal",
            filter=config.filter,
            kernel_size=config.kernel_size,
            filter_on=config.filter_on,
            short_convolution=config.short_convolution,
            convolution_taps=config.convolution_taps,
            convolution_on=config.convolution_on,
            projections=config.projections,
            weights=config.weights,
            psd=config.psd,
            positions="rotary" if config.positions == "rotary" else "none",
            device=device,
            dtype=dtype,
        )

    def _add_parameters(self, factory: dict[str, Any]) -> None:
        config = self.config
        width, heads, head_width = config.width, config.heads, config.head_width
        keys = config.key_head_count * head_width  # channels of all key heads
        sets = range(config.levels if config.projections == "per_level" else 1)
        queries_and_keys = width + keys if config.psd == "free" else width
        linears = [nn.Linear(width, queries_and_keys, bias=False, **factory) for _ in sets]
        shares = config.projections == "shared"
        self.query_key = linears[0] if shares else nn.ModuleList(linears)
        if config.psd == "cone":
            for name in ("cone_g", "cone_c"):
                cones = [nn.Parameter(torch.empty(heads, head_width, head_width, **factory)) for _ in sets]
                setattr(self, name, cones[0] if shares else nn.ParameterList(cones))
        self.value = nn.Linear(width, keys, bias=False, **factory)
        self.output = nn.Linear(width, width, bias=False, **factory)
        channels = width + keys if config.filter_on == "projected" else width
        self.filters = nn.ModuleDict(
            {str(level): Downsample(channels, config.filter, config.kernel_size, **factory) for level in range(1, config.levels)}
        )
        learns = config.weights == "learned" and config.levels > 1
        self.register_parameter("alpha", nn.Parameter(torch.empty(heads, config.levels, **factory)) if learns else None)
        kind = config.short_convolution
        self.convolution = None if kind == "none" else ShortConvolution(width, kind, config.convolution_taps, **factory)

    def _reset_own_parameters(self) -> None:
        """Level weights are uniform, and a cone starts as the tied kernel: G = I, C = 0."""
        if self.alpha is not None:
            nn.init.zeros_(self.alpha)
        for level in range(self.config.levels if self.config.psd == "cone" else 0):
            g, c = self._cone_parameters(level)
            nn.init.zeros_(c)
            with torch.no_grad():
                g.copy_(torch.eye(g.size(1), dtype=g.dtype, device=g.device).expand_as(g))

    def reset_parameters(self) -> None:
        """Starts anew, for example after construction on the meta device and to_empty()."""
        for module in self.modules():
            if module is not self and isinstance(module, nn.Linear | Downsample | ShortConvolution):
                module.reset_parameters()
        self._reset_own_parameters()

    # ---- the steps of forward, which decoding takes one by one

    def weights(self) -> Tensor:
        """λ, [heads, levels], in float32 (float64 for a float64 module)."""
        config, weight = self.config, self.output.weight
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        if self.alpha is not None:
            return self.alpha.softmax(1, dtype=dtype)
        shape = (config.heads, config.levels)
        if not isinstance(config.weights, int):
            return torch.full(shape, 1 / config.levels, dtype=dtype, device=weight.device)
        level = torch.arange(config.levels, device=weight.device)
        return (level == config.weights).to(dtype).expand(shape)

    def _cone_parameters(self, level: int) -> tuple[Tensor, Tensor]:
        pair: list[Any] = [self.cone_g, self.cone_c]
        g, c = pair if self.config.projections == "shared" else [cones[level] for cones in pair]
        return g, c

    def cone(self, level: int) -> Tensor:
        """P, [heads, head width, head width]."""
        g, c = self._cone_parameters(level)
        return torch.baddbmm(c - c.mT, g, g.mT)

    def project(self, rows: Tensor, level: int) -> Tensor:
        """Queries and keys of a level's input, before positions, [B, R, channels]."""
        config = self.config
        query_key: Any = self.query_key
        linear = query_key if config.projections == "shared" else query_key[level]
        projected: Tensor
        if config.psd != "cone" or config.positions == "rotary":
            projected = linear(rows)
            return projected
        # A cone is folded into the weight in full precision, so that it costs nothing per token. Rotary positions rule that
        # out, because P must act after the rotation.
        with _without_autocast(rows):
            q = linear.weight.view(config.heads, config.head_width, config.width)
            weight = torch.cat([linear.weight, torch.bmm(self.cone(level), q).flatten(0, 1)])
        projected = F.linear(rows, weight)
        return projected

    def split(self, projected: Tensor, level: int, rotation: Tensor | None) -> tuple[Tensor, Tensor]:
        """The queries [B, heads, R, head width] and keys [B, key heads, R, head width] of projected rows."""
        config = self.config
        rows = torch.unflatten(projected, 2, (-1, config.head_width))
        if rotation is not None:
            rows = _positions.rotated(rows, rotation)
        q = rows[:, :, : config.heads].transpose(1, 2)
        if rows.size(2) > config.heads:
            return q, rows[:, :, config.heads :].transpose(1, 2)
        return q, q @ self.cone(level).mT if config.psd == "cone" else q

    def queries_and_keys(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Those of all levels, from the input after the short convolution."""
        config, queries, keys = self.config, [], []
        filters_projected = config.filter_on == "projected"
        rows = self.project(x, 0) if filters_projected else x
        for level in range(config.levels):
            if level > 0:
                rows = self.filters[str(level)](rows)
            rotation = None
            if config.positions == "rotary":
                rotation = _positions.rotations(rows.size(1), 1 << level, config.head_width, rows)
            q, k = self.split(rows if filters_projected else self.project(rows, level), level, rotation)
            queries.append(q)
            keys.append(k)
        return queries, keys

    def values(self, x: Tensor, mixed: Tensor) -> Tensor:
        """[B, key heads, R, head width]; mixed: x after the short convolution."""
        projected: Tensor = self.value(mixed if self.config.convolution_on == "qkv" else x)
        return torch.unflatten(projected, 2, (-1, self.config.head_width)).transpose(1, 2)

    def merge(self, out: Tensor) -> Tensor:
        """From the heads, [B, heads, n, head width], to the output."""
        merged: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return merged

    def forward(self, x: Tensor, lengths: Tensor | None = None, *, key_padding_mask: Tensor | None = None) -> Tensor:
        """lengths: [B], the valid tokens of each sequence, or key_padding_mask: [B, T], True for padding, on the right.

        The output of padding is zero.
        """
        config = self.config
        if x.dim() != 3 or x.size(2) != config.width:
            raise ValueError(f"x has shape {list(x.shape)}; HierarchicalAttention needs [batch, length, {config.width}].")
        if key_padding_mask is not None:
            if lengths is not None:
                raise ValueError("lengths and key_padding_mask say the same; give one of them.")
            if key_padding_mask.shape != x.shape[:2]:
                raise ValueError(f"key_padding_mask has shape {list(key_padding_mask.shape)}; x needs {list(x.shape[:2])}.")
            lengths = lengths_of(key_padding_mask)
        x = _autocast_once(x)
        mixed = x if self.convolution is None else self.convolution(x)
        q, k = self.queries_and_keys(mixed)
        v = self.values(x, mixed)
        out, _ = attention(q, k, v, self.weights(), config.mask == "causal", lengths)
        return self.merge(out)

    def extra_repr(self) -> str:
        config, default = self.config, ModelConfig(positions="none")
        keys = [key for key in config.to_dict() if getattr(config, key) != getattr(default, key)]
        return ", ".join(f"{key}={getattr(config, key)!r}" for key in dict.fromkeys(["width", "heads", "levels", *keys]))


class Block(nn.Module):
    """x + attention(norm(x)), then x + feedforward(norm(x)), with dropout on the residual branches."""

    def __init__(self, config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.attention_norm = nn.LayerNorm(config.width, **factory)
        self.attention = HierarchicalAttention.from_config(config, **factory)
        self.feedforward_norm = nn.LayerNorm(config.width, **factory)
        self.expand = nn.Linear(config.width, config.feedforward, bias=config.biases, **factory)
        self.contract = nn.Linear(config.feedforward, config.width, bias=config.biases, **factory)
        self.dropout = config.dropout

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the block, from its input and the output of its attention."""
        x = x + F.dropout(attended, self.dropout, self.training)
        branch = self.contract(F.gelu(self.expand(self.feedforward_norm(x))))
        return x + F.dropout(branch, self.dropout, self.training)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.after_attention(x, self.attention(self.attention_norm(x), lengths))


class Transformer(nn.Module):
    """What both models share: embedding and positions, blocks, a norm.

    checkpoints: whether training keeps only the inputs of the blocks and computes the rest again in the backward pass.
    """

    positions: nn.Parameter | None
    head: nn.Linear | None

    def __init__(self, config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.config = config
        self.checkpoints = False
        self.origin: dict[str, Any] | None = None  # of a loaded model: how and on what it was trained, which hkt.save keeps
        self.embedding = nn.Embedding(config.vocab, config.width, **factory)
        learned = nn.Parameter(torch.empty(config.max_length, config.width, **factory)) if config.positions == "learned" else None
        self.register_parameter("positions", learned)
        self.blocks = nn.ModuleList([Block(config, **factory) for _ in range(config.blocks)])
        self.norm = nn.LayerNorm(config.width, **factory)
        if self.positions is not None:
            nn.init.normal_(self.positions, 0, self.config.position_scale)

    def reset_parameters(self) -> None:
        """Starts anew, for example after construction on the meta device and to_empty()."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding | HierarchicalAttention):
                module.reset_parameters()
        if self.positions is not None:
            nn.init.normal_(self.positions, 0, self.config.position_scale)

    def embedded(self, tokens: Tensor, position: Tensor | None = None) -> Tensor:
        """The input of the first block, [B, T, width]; position [B, T], where tokens are not the first of their sequences."""
        x: Tensor = self.embedding(tokens)
        if self.config.positions not in ("learned", "sinusoidal"):
            return x
        rows = tokens.size(1) if position is None else self.config.max_length
        table = self.positions if self.positions is not None else _positions.sinusoids(rows, self.config.width, x)
        return x + (table[:rows] if position is None else table[position])

    def hidden(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The output of the last block, [B, T, width]."""
        self._check(tokens, lengths)
        x = F.dropout(self.embedded(tokens), self.config.dropout, self.training)
        for block in self.blocks:
            if self.checkpoints and self.training:
                x = checkpoint(block, x, lengths, use_reentrant=False)
            else:
                x = block(x, lengths)
        return x

    def _check(self, tokens: Tensor, lengths: Tensor | None) -> None:
        name, config = type(self).__name__, self.config
        if tokens.dim() != 2 or tokens.dtype != torch.int64:
            raise ValueError(f"tokens is {tokens.dtype} {list(tokens.shape)}; {name} needs int64, [batch, length].")
        batch, length = tokens.shape
        if length > config.max_length:
            raise ValueError(f"tokens has length {length}; this {name} takes at most {config.max_length} (max_length).")
        check_tokens(tokens, config)
        if lengths is None:
            return
        if lengths.dim() != 1 or lengths.size(0) != batch:
            raise ValueError(f"lengths has shape {list(lengths.shape)}; {name} needs [{batch}], one length per sequence.")
        if lengths.dtype not in (torch.int64, torch.int32) or lengths.device != tokens.device:
            raise ValueError(f"lengths is {lengths.dtype} on {lengths.device}; {name} needs int64 or int32 on {tokens.device}.")
        wrong = _outside(lengths, length)
        if wrong is not None:
            raise ValueError(f"lengths contains {wrong}; it must be from 0 to the length of tokens, {length}.")


def _outside(values: Tensor, most: int) -> int | None:
    """A value that is not from 0 to most, where that can be seen."""
    if not _can_read(values) or values.numel() == 0:
        return None
    low, high = (int(value) for value in values.aminmax())
    return low if low < 0 else high if high > most else None


def check_tokens(tokens: Tensor, config: ModelConfig) -> None:
    """Raises a ValueError for tokens outside the vocabulary; on a GPU they are not read."""
    wrong = _outside(tokens, config.vocab - 1)
    if wrong is not None:
        raise ValueError(f"tokens contains {wrong}; the model takes 0 to {config.vocab - 1} (vocab - 1).")


class Classifier(Transformer):
    """Tokens to the logits of classes, [B, classes]: pooling over the valid tokens and a linear head.

    >>> model = Classifier(ModelConfig(width=32, classes=2))
    >>> model(torch.randint(256, (4, 20)), lengths=torch.tensor([20, 3, 7, 1])).shape
    torch.Size([4, 2])
    """

    head: nn.Linear

    def __init__(self, config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        if config.kind != "classifier":
            raise ValueError(f"model.kind is {config.kind}; Classifier needs classifier.")
        super().__init__(config, device=device, dtype=dtype)
        self.head = nn.Linear(config.width, config.classes, bias=config.biases, device=device, dtype=dtype)
        self.labels: Sequence[str] | None = None

    def pooled(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, width], zeros for a sequence of length 0."""
        y: Tensor
        if self.config.pooling == "last" and x.size(1) > 0:
            if lengths is None:
                y = self.norm(x[:, -1])
                return y
            rows = torch.arange(x.size(0), device=x.device)
            y = self.norm(x[rows, (lengths - 1).clamp_min(0)])
            return y * (lengths > 0)[:, None]
        y = self.norm(x)
        if lengths is None:
            return y.sum(1) / max(x.size(1), 1)
        valid = torch.arange(x.size(1), device=x.device) < lengths[:, None]
        return (y * valid[:, :, None]).sum(1) / lengths.clamp_min(1)[:, None]

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens: [B, T], int64; lengths: [B], if absent all tokens are valid."""
        logits: Tensor = self.head(self.pooled(self.hidden(tokens, lengths), lengths))
        return logits


class LanguageModel(Transformer):
    """Tokens to the logits of each next token, [B, T, vocab].

    It starts as GPT-2 does: N(0, 0.02²), and by 1/√(2 · blocks) less for the layers that write to the residual stream.

    >>> model = LanguageModel(ModelConfig(kind="language", width=32, mask="causal", positions="rotary")).eval()
    >>> model(torch.randint(256, (1, 20))).shape
    torch.Size([1, 20, 256])
    >>> model.generate(torch.randint(256, (1, 20)), 5).shape
    torch.Size([1, 25])
    """

    def __init__(self, config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> None:
        if config.kind != "language":
            raise ValueError(f"model.kind is {config.kind}; LanguageModel needs language.")
        super().__init__(config, device=device, dtype=dtype)
        head = None if config.tied else nn.Linear(config.width, config.vocab, bias=config.biases, device=device, dtype=dtype)
        self.head = head
        self._start_as_gpt2()

    def _start_as_gpt2(self) -> None:
        residual = 0.02 / math.sqrt(2 * len(self.blocks))
        for module, deviation in self._drawn(0.02, residual):
            nn.init.normal_(module.weight, 0, deviation)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def _drawn(self, usual: float, residual: float) -> Iterator[tuple[nn.Linear | nn.Embedding, float]]:
        """The layers that are drawn at the start, and how widely; filters and convolutions keep their own start."""
        yield self.embedding, usual
        for block in self.blocks:
            assert isinstance(block, Block)
            for linear in block.attention.query_key.modules():
                if isinstance(linear, nn.Linear):
                    yield linear, usual
            yield block.attention.value, usual
            yield block.attention.output, residual
            yield block.expand, usual
            yield block.contract, residual
        if self.head is not None:
            yield self.head, usual

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._start_as_gpt2()

    def logits(self, x: Tensor) -> Tensor:
        """From the output of the last block, [B, n, width]."""
        y = self.norm(x)
        logits: Tensor = F.linear(y, self.embedding.weight) if self.head is None else self.head(y)
        return logits

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens: [B, T], int64; lengths: [B], if absent all tokens are valid."""
        return self.logits(self.hidden(tokens, lengths))

    def generate(
        self,
        tokens: Tensor,
        max_new_tokens: int,
        *,
        lengths: Sequence[int] | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        generator: torch.Generator | None = None,
        stop: int | Sequence[int] = (),
    ) -> Tensor:
        """Continues prompts [B, n]; returns them with at most max_new_tokens more.

        lengths: of prompts that are padded on the left; the last lengths[b] tokens of row b count.
        temperature: 0 takes the most probable token. top_k: only the k most probable ones; 0: all. top_p: of these only the
            most probable ones that have this probability together.
        stop: a token, or several, that end a sequence; its row goes on with that token until all have ended.

        The model sees at most its max_length tokens: when they are full, it goes on from the last half of them.
        """
        sampling = _generation.Sampling(temperature, top_k, top_p, generator)
        return _generation.generate(self, tokens, max_new_tokens, lengths, sampling, [stop] if isinstance(stop, int) else list(stop))


def create_model(config: ModelConfig, *, device: Any = None, dtype: torch.dtype | None = None) -> Classifier | LanguageModel:
    """The model that config.kind names.

    >>> type(create_model(ModelConfig(width=32))).__name__
    'Classifier'
    """
    if config.kind == "language":
        return LanguageModel(config, device=device, dtype=dtype)
    return Classifier(config, device=device, dtype=dtype)
