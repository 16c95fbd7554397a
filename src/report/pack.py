# SPDX-License-Identifier: Apache-2.0
"""Packs plotly.min.js for the page: gzip, in base 85 with letters that mean nothing in HTML. `pack.py FROM TO`."""
import base64
import gzip
import pathlib
import sys

source, target = map(pathlib.Path, sys.argv[1:])
packed = gzip.compress(source.read_bytes(), 9, mtime=0)
text = base64.b85encode(packed, pad=True).translate(bytes.maketrans(b"&<>@`", b",./:["))

target.write_bytes(str(len(packed)).encode() + b" " + text)
