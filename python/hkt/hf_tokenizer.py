# SPDX-License-Identifier: Apache-2.0
# mypy: disallow-untyped-calls=False, disallow-subclassing-any=False
"""A tokenizer of bytes for transformers: token i is the byte i, and byte 0 ends documents, pads, and begins an empty prompt."""

from typing import Any

from transformers import AddedToken, PreTrainedTokenizer

BYTES = 256
END = "\0"


class HktTokenizer(PreTrainedTokenizer):
    """Text as its UTF-8 bytes. It has no files of its own.

    >>> tokenizer = HktTokenizer()
    >>> tokenizer("né").input_ids
    [110, 195, 169]
    >>> tokenizer.decode([110, 195, 169, 0], skip_special_tokens=True)
    'né'

    Bytes that are not UTF-8, such as half a character, are decoded to U+FFFD. A text that was read from bytes with
    errors="surrogateescape" is encoded to those bytes.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, **options: Any) -> None:
        end = AddedToken(END, lstrip=False, rstrip=False, normalized=False, special=True)
        for token in ("bos_token", "eos_token", "pad_token"):
            options.setdefault(token, end)
        super().__init__(**options)

    @property
    def vocab_size(self) -> int:
        return BYTES

    def get_vocab(self) -> dict[str, int]:
        return {chr(byte): byte for byte in range(BYTES)} | self.added_tokens_encoder

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **options: Any) -> list[str]:
        if len(self.added_tokens_encoder) > 1:  # tokens that users added must be found in the text first
            return list(super().tokenize(text, **options))
        return self._tokenize(text)

    def _tokenize(self, text: str, **options: Any) -> list[str]:
        return list(text.encode("utf-8", "surrogateescape").decode("latin-1"))  # one character for each byte

    def _convert_token_to_id(self, token: str) -> int | None:
        return ord(token) if len(token) == 1 and ord(token) < BYTES else None

    def _convert_id_to_token(self, index: int) -> str:
        return chr(index) if 0 <= index < BYTES else ""

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        added = self.added_tokens_encoder
        pieces = (token.encode() if token in added else token.encode("latin-1") for token in tokens)
        return b"".join(pieces).decode("utf-8", "replace")

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        return ()
