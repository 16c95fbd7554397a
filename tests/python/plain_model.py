# SPDX-License-Identifier: Apache-2.0
# The models in plain PyTorch, written from the definition: parameters by name in, logits out.
import plain
import torch
import torch.nn.functional as F


def angles(length, width, stride=1):
    position = stride * torch.arange(length, dtype=torch.float64)
    return position[:, None] / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)


def sinusoids(length, width):
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = angles(length, width).sin()
    table[:, 1::2] = angles(length, width).cos()[:, : width // 2]
    return table


def rotated(x, stride):
    angle = angles(x.size(2), x.size(3), stride)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Attention:
    def __init__(self, config, parameters):
        self.config, self.parameters = config, parameters

    def level_parameter(self, name, level, suffix=""):
        middle = f".{level}" if self.config["projections"] == "per_level" else ""
        return self.parameters[name + middle + suffix]

    def heads(self, x):
        return x.unflatten(2, (-1, self.config["width"] // self.config["heads"])).transpose(1, 2)

    def query_key(self, x, level):
        """Of a level's input, or with filters on queries and keys of their rows."""
        width = self.config["width"]
        if self.config.get("filter_on") != "projected":
            x = x @ self.level_parameter("query_key", level, ".weight").T
        q, *k = [self.heads(y) for y in (x[..., :width], x[..., width:]) if y.size(-1)]
        if self.config["positions"] == "rotary":
            q, *k = [rotated(y, 2**level) for y in (q, *k)]
        if self.config["psd"] == "tied":
            k = [q]
        if self.config["psd"] == "cone":
            g, c = (self.level_parameter(name, level) for name in ("cone_g", "cone_c"))
            k = [q @ (g @ g.mT + c - c.mT).mT]
        return q, k[0]

    def filter(self, level, width, dtype):
        taps = self.config["kernel_size"]
        constant = torch.full((taps, width), 1 / taps, dtype=dtype)
        return constant if self.config["filter"] == "mean" else self.parameters[f"filters.{level}.weight"]

    def weights(self, dtype):
        shape = (self.config["heads"], self.config["levels"])
        kind = self.config["weights"]
        if kind == "learned" and self.config["levels"] > 1:
            return self.parameters["alpha"].softmax(1)
        if isinstance(kind, int):
            return F.one_hot(torch.tensor(kind), shape[1]).to(dtype).expand(shape)
        return torch.full(shape, 1 / shape[1], dtype=dtype)

    def projected(self, x):
        """The queries and keys of all levels, and what they are projected from."""
        if self.config.get("filter_on") == "projected":
            x = x @ self.parameters["query_key.weight"].T
        levels = [x]
        for level in range(1, self.config["levels"]):
            levels.append(plain.downsample(levels[-1], self.filter(level, x.size(2), x.dtype)))
        q, k = zip(*[self.query_key(y, level) for level, y in enumerate(levels)])
        return q, k, levels

    def convolved(self, x):
        """The short convolution, tap by tap."""
        if self.config.get("short_convolution", "none") == "none":
            return x
        weight, dense = self.parameters["convolution.weight"], self.config["short_convolution"] == "dense"
        y = torch.zeros_like(x) if dense else x
        for tap, w in enumerate(weight):
            earlier = F.pad(x, (0, 0, tap, 0))[:, : x.size(1)]
            y = y + (earlier @ w if dense else earlier * w)
        return y

    def __call__(self, x, lengths):
        y = self.convolved(x)
        q, k, _ = self.projected(y)
        v = self.heads((y if self.config.get("convolution_on") == "qkv" else x) @ self.parameters["value.weight"].T)
        group = q[0].size(1) // v.size(1)
        k, v = [x.repeat_interleave(group, 1) for x in k], v.repeat_interleave(group, 1)
        causal = self.config["mask"] == "causal"
        out, _ = plain.attention(q, k, v, self.weights(x.dtype), causal, lengths)
        return out.transpose(1, 2).flatten(2) @ self.parameters["output.weight"].T


def below(parameters, prefix):
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p[f"{name}.bias"])


def linear(x, p, name):
    return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))


def hidden(config, parameters, tokens, lengths=None, watch=None):
    """The output of the last block after the norm; watch(block, attention, its input) is called for each block."""
    length = tokens.size(1)
    x = parameters["embedding.weight"][tokens]
    if config["positions"] == "learned":
        x = x + parameters["positions"][:length]
    if config["positions"] == "sinusoidal":
        x = x + sinusoids(length, config["width"]).to(x.dtype)
    for block in range(config["blocks"]):
        p = below(parameters, f"blocks.{block}.")
        attention, seen = Attention(config, below(p, "attention.")), norm(x, p, "attention_norm")
        if watch:
            watch(block, attention, seen)
        x = x + attention(seen, lengths)
        x = x + linear(F.gelu(linear(norm(x, p, "feedforward_norm"), p, "expand")), p, "contract")
    return norm(x, parameters, "norm")


def predict_next(config, parameters, tokens):
    """A language model's logits of each next token."""
    x = hidden(config, parameters, tokens)
    return x @ parameters["embedding.weight"].T if config["tied"] else linear(x, parameters, "head")


def classify(config, parameters, tokens, lengths=None, watch=None):
    """A classifier's logits."""
    length = tokens.size(1)
    x = hidden(config, parameters, tokens, lengths, watch)
    pooled = []
    for row, n in zip(x, [length] * len(x) if lengths is None else lengths.tolist()):
        valid = row[:n] if config["pooling"] == "mean" else row[:n][-1:]
        pooled.append(valid.sum(0) / max(len(valid), 1))
    return linear(torch.stack(pooled), parameters, "head")
