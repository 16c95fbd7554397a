# SPDX-License-Identifier: Apache-2.0
"""The architecture of a model; the names are the same in Python, in C++, on the command line and in checkpoints."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, NoReturn

Kind = Literal["classifier", "language"]
Attention = Literal["hkt"]  # the program has others, for comparison
Filter = Literal["dense", "depthwise", "mean"]
FilterOn = Literal["input", "projected"]
Convolution = Literal["none", "depthwise", "dense"]
ConvolutionOn = Literal["qk", "qkv"]
Projections = Literal["shared", "per_level"]
LevelWeights = Literal["learned", "uniform"] | int
Positions = Literal["sinusoidal", "learned", "rotary", "none"]
Mask = Literal["none", "causal"]
Psd = Literal["free", "tied", "cone"]
Pooling = Literal["mean", "last"]

MAX_LEVELS = 8
MAX_HEAD_WIDTH = 256

_MAX_WIDTH = 65536
_MAX_BLOCKS = 1024
_MAX_TAPS = 64
_MAX_SIZE = 1 << 30  # of sizes that only memory limits
_MAX_LENGTH = 1 << 24  # of a sequence; position tables have one row per token

Check = Callable[[Any], str | None]  # what is allowed, if a value is not


def shown(value: Any) -> str:
    """A value as short JSON, for messages."""
    text = json.dumps(value, separators=(",", ":"), default=str)
    return text if len(text) <= 60 else text[:60] + "…"


def _edit_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def nearest(name: str, known: list[str]) -> str:
    """The known name that is the most like this one."""
    return min(known, key=lambda other: _edit_distance(name[:64], other))


def refuse_value(key: str, value: Any, allowed: str) -> NoReturn:
    raise ValueError(f"{key} is {shown(value)}; it must be {allowed}.")


def refuse_key(where: str, key: str, known: list[str]) -> NoReturn:
    raise ValueError(f'{where} has the unknown key {shown(key)}; the nearest known one is "{nearest(key, known)}".')


def _integer(low: int, high: int) -> Check:
    return lambda value: None if type(value) is int and low <= value <= high else f"an integer from {low} to {high}"


def _choice(*names: str) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, str) and value in names:
            return None
        hint = f' (nearest: "{nearest(value, list(names))}")' if isinstance(value, str) else ""
        return "one of " + ", ".join(f'"{name}"' for name in names) + hint

    return check


_PEERS = ("window", "bigbird", "linformer", "performer", "h1d")


def _attention(value: Any) -> str | None:
    if value in _PEERS and isinstance(value, str):
        return '"hkt", the one kind that Python has; the program trains and scores the others'
    return _choice("hkt", *_PEERS)(value)


def _even(value: Any) -> str | None:
    return _integer(2, _MAX_WIDTH)(value) or (None if value % 2 == 0 else "even")


def _scale(value: Any) -> str | None:
    return None if type(value) in (int, float) and 0 <= value < 100 else "a number from 0 to below 100"


def _truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _share(value: Any) -> str | None:
    return None if type(value) in (int, float) and 0 <= value < 1 else "a number from 0 to below 1"


def _level_weights(value: Any) -> str | None:
    known = value in ("learned", "uniform") if isinstance(value, str) else type(value) is int and 0 <= value < MAX_LEVELS
    return None if known else '"learned", "uniform" or the number of one level, 0 to levels - 1'


_COMMON: dict[str, Check] = {
    "kind": _choice("classifier", "language"),
    "attention": _attention,
    "levels": _integer(1, MAX_LEVELS),
    "heads": _integer(1, _MAX_WIDTH),
    "key_heads": _integer(0, _MAX_WIDTH),
    "width": _integer(1, _MAX_WIDTH),
    "blocks": _integer(1, _MAX_BLOCKS),
    "feedforward": _integer(1, _MAX_SIZE),
    "filter": _choice("dense", "depthwise", "mean"),
    "kernel_size": _integer(1, _MAX_TAPS),
    "filter_on": _choice("input", "projected"),
    "short_convolution": _choice("none", "depthwise", "dense"),
    "convolution_taps": _integer(2, _MAX_TAPS),
    "convolution_on": _choice("qk", "qkv"),
    "window": _integer(0, _MAX_LENGTH),
    "globals": _integer(0, _MAX_LENGTH),
    "random_keys": _integer(0, _MAX_WIDTH),
    "features": _integer(1, _MAX_WIDTH),
    "block_size": _even,
    "projections": _choice("shared", "per_level"),
    "weights": _level_weights,
    "positions": _choice("sinusoidal", "learned", "rotary", "none"),
    "position_scale": _scale,
    "mask": _choice("none", "causal"),
    "psd": _choice("free", "tied", "cone"),
    "biases": _truth,
    "dropout": _share,
    "vocab": _integer(1, _MAX_SIZE),
    "max_length": _integer(1, _MAX_LENGTH),
}
# The keys that mean something for a kind of model, in the order in which they are written.
_CHECKS: dict[str, dict[str, Check]] = {
    "classifier": {**_COMMON, "pooling": _choice("mean", "last"), "classes": _integer(1, _MAX_SIZE)},
    "language": {**_COMMON, "tied": _truth},
}


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The section "model" of a config. A value out of range, or two that contradict each other, raise a ValueError.

    >>> config = ModelConfig(kind="language", width=64, positions="rotary", mask="causal")
    >>> config.head_width
    16
    >>> ModelConfig.from_dict(config.to_dict()) == config
    True
    >>> ModelConfig(width=10, heads=4)
    Traceback (most recent call last):
        ...
    ValueError: model.width is 10; it must be a multiple of model.heads, 4.
    """

    kind: Kind = "classifier"
    attention: Attention = "hkt"
    levels: int = 3
    heads: int = 4
    key_heads: int = 0  # heads of keys and values, shared by groups of heads; 0: as many as heads
    width: int = 128
    blocks: int = 2
    feedforward: int = 256
    filter: Filter = "dense"
    kernel_size: int = 2
    filter_on: FilterOn = "input"  # projected: the filters act on queries and keys instead of on their inputs
    short_convolution: Convolution = "none"  # at full resolution, on the input of queries and keys
    convolution_taps: int = 4
    convolution_on: ConvolutionOn = "qk"  # qkv: on the input of values, too
    # of the program's other kinds of attention, as in its configs
    window: int = 64
    globals: int = 1
    random_keys: int = 64
    features: int = 128
    block_size: int = 16
    projections: Projections = "shared"
    weights: LevelWeights = "learned"  # a number: all weight on that level
    positions: Positions = "sinusoidal"
    position_scale: float = 0.02  # of learned positions at the start; tokens have 1, in a language model 0.02
    mask: Mask = "none"
    psd: Psd = "free"
    biases: bool = True  # of the feed-forward layers and the head
    dropout: float = 0.1
    vocab: int = 256
    max_length: int = 1024
    pooling: Pooling = "mean"  # of classifiers
    classes: int = 10
    tied: bool = False  # the head of a language model uses the embedding's weights

    def __post_init__(self) -> None:
        self._check_value("kind", _COMMON["kind"])
        checks = _CHECKS[self.kind]
        for key, check in checks.items():
            self._check_value(key, check)
        for field in fields(self):
            if field.name not in checks and getattr(self, field.name) != field.default:
                raise ValueError(f'model.{field.name} means nothing where model.kind is "{self.kind}"; leave it out.')
        for key in ("dropout", "position_scale"):
            object.__setattr__(self, key, float(getattr(self, key)))
        self._check_together()

    def _check_value(self, key: str, check: Check) -> None:
        value = getattr(self, key)
        if allowed := check(value):
            refuse_value(f"model.{key}", value, allowed)

    def _check_together(self) -> None:
        if self.width % self.heads != 0:
            raise ValueError(f"model.width is {self.width}; it must be a multiple of model.heads, {self.heads}.")
        head_width = f"model.width / model.heads is {self.head_width}"
        if self.head_width > MAX_HEAD_WIDTH:
            raise ValueError(f"{head_width}; it must be from 1 to {MAX_HEAD_WIDTH}.")
        if self.positions == "rotary" and self.head_width % 2 != 0:
            raise ValueError(f'{head_width}; it must be even for "rotary" positions.')
        if isinstance(self.weights, int) and self.weights >= self.levels:
            raise ValueError(f"model.weights is {self.weights}; it must be below model.levels, {self.levels}.")
        if self.heads % self.key_head_count != 0:
            raise ValueError(f"model.key_heads is {self.key_heads}; it must divide model.heads, {self.heads} (0: as many).")
        if self.psd != "free" and self.key_head_count != self.heads:
            raise ValueError(
                f'model.key_heads is {self.key_heads}; where keys are computed from queries (model.psd "tied" or "cone") '
                "it must be 0 or model.heads."
            )
        is_plain = self.filter != "dense" and self.projections == "shared" and self.psd == "free"
        if self.filter_on == "projected" and self.levels > 1 and not is_plain:
            raise ValueError(
                'model.filter_on is "projected"; that needs a "depthwise" or "mean" model.filter, "shared" '
                'model.projections and a "free" model.psd.'
            )
        if self.kind == "language" and self.mask != "causal":
            raise ValueError('model.mask is "none"; a language model needs "causal".')

    @property
    def head_width(self) -> int:
        """The channels of one head."""
        return self.width // self.heads

    @property
    def key_head_count(self) -> int:
        """The heads of keys and values."""
        return self.key_heads or self.heads

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """From the keys and values of JSON; those left out take their defaults, unknown ones raise a ValueError."""
        if not isinstance(values, Mapping):
            refuse_value("model", values, "an object")
        kind = values.get("kind", "classifier")
        if allowed := _COMMON["kind"](kind):
            refuse_value("model.kind", kind, allowed)
        known = _CHECKS[kind]
        for key in values:
            if key not in known:
                refuse_key("model", key, list(known))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """All keys of this kind of model, in the order in which every part of this project writes them."""
        return {key: getattr(self, key) for key in _CHECKS[self.kind]}
