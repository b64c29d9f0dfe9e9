"""Characters that a tokenizer drops: a BPE model without unknown token, and without all bytes to fall back to, makes nothing of what it does not know.

All other models say it: by the unknown token, or an error. Byte-level vocabularies with all bytes of UTF-8, and those with byte fallback, cannot lose any;
their texts are not looked at. For the rest a text costs its set of characters (a tenth of encoding), and once more its pre-tokenization if some of
these are not known. What normalizer and pre-tokenizer leave out on purpose, such as white space, is not lost.
"""

import re

import msgspec
from msgspec import Struct
from tokenizers import Tokenizer, models

from dolma_dask.tokens.spelled import InText

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

_NEVER = {0xC0, 0xC1, *range(0xF5, 256)}
"""Bytes that UTF-8 never has; GPT-NeoX, trained on text, lacks them."""

_SHOWN = 5
"""Lost characters of a text that are named."""


class _Steps(Struct):
    normalizer: msgspec.Raw = msgspec.Raw(b"null")
    pre_tokenizer: msgspec.Raw = msgspec.Raw(b"null")


class Alphabet:
    """The characters that a BPE model knows, which drops all others."""

    def __init__(self, tokenizer: Tokenizer, model: models.BPE) -> None:
        self._normalizer, self._pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
        self._words = frozenset(tokenizer.get_vocab(with_added_tokens=False))
        self._has_bytes, self._takes_words = model.byte_fallback, model.ignore_merges
        self._prefix, self._suffix = (model.continuing_subword_prefix or "", model.end_of_word_suffix or "")
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._blank = _any_of([content for content in added if content.isspace()])
        self._added = _any_of(added)
        self._safe: dict[str, bool] = {}

    def lost(self, text: str, in_text: InText = "encode") -> list[str]:
        """Return the characters of a text that become no token, in their order."""
        if all(map(self._is_safe, set(self._normalized(text)))):
            return []
        cut = self._added if in_text == "encode" else self._blank
        parts = (part for whole in cut.split(text) for part in cut.split(self._normalized(whole)))
        return [char for part in parts for piece in self._pieces(part) for char in self._unknown(piece)]

    def shown(self, lost: list[str]) -> str:
        """Return lost characters for people."""
        return f"{len(lost):,} of {' '.join(map(_visible, list(dict.fromkeys(lost))[:_SHOWN]))}"

    def _normalized(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _pieces(self, text: str) -> list[str]:
        if self._pre_tokenizer is None or not text:
            return [text]
        return [piece for piece, _ in self._pre_tokenizer.pre_tokenize_str(text)]

    def _is_safe(self, char: str) -> bool:
        """Tell whether a character is known wherever it stands; most texts have no other."""
        if char not in self._safe:
            around = [one for piece in self._pieces(char) for one in piece]
            shapes = (
                f"{before}{one}{behind}"
                for one in around
                for before in {"", self._prefix}
                for behind in {"", self._suffix}
            )
            self._safe[char] = all(map(self._is_known, shapes))
        return self._safe[char]

    def _unknown(self, piece: str) -> list[str]:
        if self._takes_words and piece in self._words:
            return []
        last = len(piece) - 1
        return [
            char
            for at, char in enumerate(piece)
            if not self._is_known(f"{self._prefix if at else ''}{char}{self._suffix if at == last else ''}")
        ]

    def _is_known(self, symbol: str) -> bool:
        has_bytes = self._has_bytes and all(_BYTES[byte] in self._words for byte in symbol.encode())
        return symbol in self._words or has_bytes


def _any_of(contents: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))) or r"(?!)")


def _visible(char: str) -> str:
    """Return a character as people can see it."""
    return char if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}"


def shown_bytes() -> dict[str, int]:
    """Return the byte behind each character of a byte-level vocabulary (GPT-2's ``bytes_to_unicode``)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


def find_alphabet(tokenizer: Tokenizer, content: str) -> Alphabet | None:
    """Return the alphabet of a tokenizer, whose JSON is `content`, if it may lose characters; None if it cannot."""
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.unk_token is not None:
        return None
    steps = msgspec.json.decode(content, type=_Steps)
    makes_bytes = any(b'"ByteLevel"' in bytes(step) for step in (steps.normalizer, steps.pre_tokenizer))
    has_affixes = model.continuing_subword_prefix or model.end_of_word_suffix
    shown = {byte: char for char, byte in shown_bytes().items()}
    names = shown if makes_bytes and not has_affixes else dict(enumerate(_BYTES))
    is_whole = all(model.token_to_id(name) is not None for byte, name in names.items() if byte not in _NEVER)
    return None if is_whole and (makes_bytes or model.byte_fallback) else Alphabet(tokenizer, model)
