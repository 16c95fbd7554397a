# SPDX-License-Identifier: Apache-2.0
"""A trained classifier in use: texts in, labels and probabilities out, as hkt::Predictor and `hkt predict` answer."""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import torch

from hkt.io import load
from hkt.nn import Classifier

# On the CPU a batch whose activations stay in a core's cache; a GPU wants many tokens at once.
_CPU_TOKENS, _GPU_TOKENS = 1 << 12, 1 << 16


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a Predictor says of a text."""

    label: str | None = None  # the most probable one; None if there is an error
    probability: float | None = None  # of that label
    probabilities: dict[str, float] = dataclasses.field(default_factory=dict)  # of every label; empty if there is an error
    cut: bool = False  # the text is longer than the model's max_length and was cut there
    error: str | None = None  # why this text has no label, in one sentence; the others have theirs


class Predictor:
    """A classifier of texts, from a run directory of `hkt train` or a folder that `hkt export` wrote, in bfloat16 too.

    Texts of similar length are computed together, in float32. Several threads may share one.

    >>> predictor = hkt.Predictor("models/imdb-hkt")
    >>> [answer.label for answer in predictor.predict(open("models/reviews.txt").read().splitlines())]
    ['neg', 'pos']
    """

    def __init__(self, folder: str | os.PathLike[str], *, device: torch.device | str = "cpu") -> None:
        model = load(folder, device=device)
        if not isinstance(model, Classifier):
            raise ValueError(f"{folder} contains a language model; hkt.load(folder).generate continues a text.")
        data = (model.origin or {}).get("data", {})
        task = data.get("task", "listops") if isinstance(data, dict) else "listops"
        if task not in ("text", "imdb"):
            raise ValueError(f"{folder} is of the task {task}, whose tokens are not the bytes of a text; use hkt.load.")
        self._model = model.requires_grad_(False)
        self._device = torch.device(device)
        self.labels: list[str] = list(model.labels or [])

    def predict(self, texts: Sequence[str | bytes], *, phases: int = 1) -> list[Prediction]:
        """An answer for every text, in their order.

        phases: its probabilities are the mean over so many beginnings of a text, without its first 0, 1, 2, … bytes.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("texts is one text; predict takes a sequence of them.")
        if phases < 1:
            raise ValueError(f"phases is {phases}; it must be at least 1.")
        encoded = [text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text) for text in texts]
        answers = [Prediction(error=self._trouble(text, phases)) for text in encoded]
        good = [i for i in range(len(encoded)) if answers[i].error is None]
        parts = [(i, encoded[i][min(skip, len(encoded[i]) - 1) :]) for i in good for skip in range(phases)]
        sums = {i: [0.0] * len(self.labels) for i in good}
        order = sorted(range(len(parts)), key=lambda part: self._length(parts[part][1]))
        for batch in self._batches([text for _, text in parts], order):
            rows = self._probabilities([parts[part][1] for part in batch])
            for part, row in zip(batch, rows, strict=True):
                i = parts[part][0]
                sums[i] = [a + b for a, b in zip(sums[i], row, strict=True)]
        for i in good:
            mean = [value / phases for value in sums[i]]
            best = max(range(len(mean)), key=mean.__getitem__)
            cut = len(encoded[i]) > self._model.config.max_length
            answers[i] = Prediction(self.labels[best], mean[best], dict(zip(self.labels, mean, strict=True)), cut)
        return answers

    def _trouble(self, text: bytes, phases: int) -> str | None:
        if not text:
            return "the text is empty; it must have at least one byte."
        if 0 in text:
            return "the text contains the byte 0, which is reserved for padding."
        most = max(text[: self._model.config.max_length + phases - 1])
        if most >= self._model.config.vocab:
            return f"the text has the token {most}; this model takes 1 to {self._model.config.vocab - 1}."
        return None

    def _length(self, text: bytes) -> int:
        return min(len(text), self._model.config.max_length)

    def _batches(self, texts: Sequence[bytes], order: Sequence[int]) -> Iterator[list[int]]:
        """Sorted by length, and cut where a batch, with its padding, would have too many tokens."""
        most = _CPU_TOKENS if self._device.type == "cpu" else _GPU_TOKENS
        batch: list[int] = []
        for i in order:
            if batch and self._length(texts[i]) * (len(batch) + 1) > most:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def _probabilities(self, texts: Sequence[bytes]) -> list[list[float]]:
        lengths = torch.tensor([self._length(text) for text in texts])
        tokens = torch.zeros(len(texts), int(lengths.max()), dtype=torch.long)
        for row, text in enumerate(texts):
            tokens[row, : lengths[row]] = torch.frombuffer(bytearray(text[: self._model.config.max_length]), dtype=torch.uint8)
        with torch.no_grad():
            logits = self._model(tokens.to(self._device), lengths.to(self._device))
        rows: list[list[float]] = logits.double().softmax(1).cpu().tolist()
        return rows
