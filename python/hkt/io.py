# SPDX-License-Identifier: Apache-2.0
"""Run directories and exported models, as the program hkt writes and reads them: config.json and model.safetensors."""

import json
import os
import re
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hkt.config import ModelConfig, shown
from hkt.nn import Classifier, LanguageModel, create_model

FORMAT = 1
_MODEL, _CONFIG = "model.safetensors", "config.json"
_CHECKSUM = re.compile(rb'"checksum":"crc32:([0-9a-f]{8})"')
_LONGEST_LABEL = 256  # bytes
_LARGEST_HEADER = 100_000_000


def _checksum(header: bytes, data: bytes | memoryview) -> str:
    """Of a header whose own digits are zeros, and of what follows it."""
    return f"{zlib.crc32(data, zlib.crc32(header)):08x}"


def _checked_labels(labels: Sequence[str], classes: int, owner: str) -> list[str]:
    names = list(labels)
    if len(names) != classes:
        raise ValueError(f"{owner} has {len(names)} labels, but its model has {classes} classes.")
    for name in names:
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= _LONGEST_LABEL:
            raise ValueError(f"{owner} has a label that is not a string of 1 to {_LONGEST_LABEL} bytes.")
    if len(set(names)) < len(names):
        raise ValueError(f"{owner} has the label {shown(max(names, key=names.count))} twice.")
    return names


class _Stored:
    """What model.safetensors holds. A damaged or foreign file raises a ValueError that names it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
        self._verify(content)
        try:
            with safetensors.safe_open(path, "pt") as file:
                self.metadata: dict[str, str] = file.metadata() or {}
            self.tensors: dict[str, Tensor] = safetensors.torch.load(content)
        except safetensors.SafetensorError as error:
            raise ValueError(f"{path} is not valid safetensors: {error}.") from None
        for key in ("config", "labels", "data"):
            if key not in self.metadata:
                raise ValueError(f'{path} was not written by hkt: its metadata has no "{key}".')

    def _verify(self, content: bytes) -> None:
        size = int.from_bytes(content[:8], "little")
        if len(content) < 8 or size > min(len(content) - 8, _LARGEST_HEADER):
            raise ValueError(f"{self.path} is not safetensors, or is truncated.")
        header = content[8 : 8 + size]
        stored = _CHECKSUM.search(header)
        if stored is None:
            return
        begin, end = stored.span(1)
        found = _checksum(header[:begin] + b"0" * 8 + header[end:], memoryview(content)[8 + size :])
        if found != stored[1].decode():
            raise ValueError(f"{self.path} is damaged: its checksum is {found} and should be {stored[1].decode()}.")

    def json(self, key: str) -> Any:
        try:
            return json.loads(self.metadata[key])
        except json.JSONDecodeError:
            raise ValueError(f'{self.path} is damaged: its "{key}" is not JSON.') from None

    def config(self) -> dict[str, Any]:
        config = self.json("config")
        if not isinstance(config, dict) or config.get("format") != FORMAT:
            raise ValueError(f'{self.path} has no config of format {FORMAT}; it was written by another version of hkt.')
        return config


def _check_tensors(path: Path, wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    for name, tensor in found.items():
        if name not in wanted:
            raise ValueError(f"{path} has the tensor {shown(name)}, which its config does not define.")
        if tensor.shape != wanted[name].shape or not tensor.is_floating_point():
            raise ValueError(
                f"{path} has {shown(name)} as {tensor.dtype} {list(tensor.shape)}, but its config requires floating-point numbers "
                f"of shape {list(wanted[name].shape)}."
            )
    for name in wanted:
        if name not in found:
            raise ValueError(f"{path} lacks the tensor {shown(name)}.")


def load(
    folder: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Classifier | LanguageModel:
    """The model of a run directory or of a folder that `hkt export` wrote, in eval mode.

    A classifier has the names of its classes as `labels`. dtype: exported models are stored in bfloat16, and computed with in
    float32 unless this says otherwise.

    >>> model = hkt.load("models/imdb-hkt")
    >>> model.labels
    ['neg', 'pos']
    >>> tokens = torch.tensor([list(b"I enjoyed every minute of it.")])
    >>> model(tokens).shape
    torch.Size([1, 2])
    """
    path = Path(folder) / _MODEL
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; a run directory of `hkt train` or an exported model is needed.")
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {_MODEL}: it is not a run directory, or its run has not finished an epoch.")
    stored = _Stored(path)
    config = stored.config()
    try:
        model_config = ModelConfig.from_dict(config.get("model", {}))
    except ValueError as error:
        raise ValueError(f"{path} has an invalid config: {error}") from None
    if model_config.blocks > len(stored.tensors):  # each block has several tensors; so a config cannot make a huge model
        raise ValueError(f"{path} has fewer tensors than its config has blocks.")
    model = create_model(model_config, device="meta")
    _check_tensors(path, dict(model.state_dict()), stored.tensors)
    tensors = {name: tensor.to(device=device, dtype=dtype) for name, tensor in stored.tensors.items()}
    model.load_state_dict(tensors, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_(True)
    labels = stored.json("labels")
    if isinstance(model, Classifier):
        model.labels = _checked_labels(labels if isinstance(labels, list) else [], model_config.classes, str(path))
    model.origin = {key: config[key] for key in ("train", "data") if key in config} | {"fingerprint": stored.metadata["data"]}
    return model.eval()


def save(model: nn.Module, folder: str | os.PathLike[str], *, labels: Sequence[str] | None = None) -> None:
    """Writes a Classifier or LanguageModel as the program hkt reads it: `hkt predict`, `generate`, `theory` and others work with it.

    labels: the names of the classes; by default those that the model was loaded with, else "0", "1", …
    An older model in the folder is replaced when the new one is complete. Training cannot be resumed from it.

    >>> model = Classifier(ModelConfig(width=32, classes=2))
    >>> hkt.save(model, folder, labels=["no", "yes"])
    >>> hkt.load(folder).labels
    ['no', 'yes']
    """
    if not isinstance(model, Classifier | LanguageModel):
        inner = next((f" (pass its .{name})" for name in ("module", "_orig_mod") if hasattr(model, name)), "")
        raise TypeError(f"model is a {type(model).__name__}; save takes a Classifier or a LanguageModel{inner}.")
    names: list[str] = []
    if isinstance(model, Classifier):
        classes = model.config.classes
        given = labels if labels is not None else model.labels
        names = _checked_labels(given if given is not None else [str(i) for i in range(classes)], classes, "labels")
    elif labels is not None:
        raise ValueError("labels are the names of classes; a LanguageModel has none.")
    origin = dict(model.origin or {})
    fingerprint = origin.pop("fingerprint", "")
    origin.setdefault("data", {"task": "lm" if isinstance(model, LanguageModel) else "text"})
    config = {"format": FORMAT, "model": model.config.to_dict(), **origin}
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    metadata = {"checksum": f"crc32:{0:08x}", "config": text, "labels": json.dumps(names, ensure_ascii=False), "data": fingerprint}
    state = model.state_dict()
    if any(hasattr(tensor, "full_tensor") for tensor in state.values()):
        raise TypeError(
            "model is sharded; gather its weights (torch.distributed.checkpoint.state_dict.get_model_state_dict with full_state_dict=True), "
            "load them into a model that is not, and save that."
        )
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    _write(out / _MODEL, _with_checksum(safetensors.torch.save(tensors, metadata)))
    _write(out / _CONFIG, text.encode())


def _with_checksum(content: bytes) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], memoryview(content)[8 + size :]
    place = _CHECKSUM.search(header)
    assert place is not None
    begin, end = place.span(1)
    return content[:8] + header[:begin] + _checksum(header, data).encode() + header[end:] + data


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: a reader sees the old file or the new one."""
    handle, name = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
