# SPDX-License-Identifier: Apache-2.0
"""Files that hkt would not write: valid safetensors, with the checksum they ought to have, and anything inside."""
import json
import struct
import zlib

from safetensors import safe_open


def read(path):
    """(tensors, metadata); a tensor is (dtype, shape, bytes)."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = content[8 + length:]
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}, metadata


def write(path, tensors, metadata, checksum=True):
    """With a right checksum; metadata values are strings."""
    metadata = {key: value for key, value in metadata.items() if key != "checksum"}
    header = {"__metadata__": {"checksum": "crc32:00000000", **metadata} if checksum else metadata}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if checksum:
        text = text.replace(b"crc32:00000000", b"crc32:%08x" % zlib.crc32(text + data), 1)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def with_metadata(source, target, **changes):
    """A copy of a file whose metadata is changed; a value that is no string is written as JSON."""
    tensors, metadata = read(source)
    for key, value in changes.items():
        metadata[key] = value if isinstance(value, str) else json.dumps(value)
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, tensors, metadata)


def config_of(path):
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["config"])
