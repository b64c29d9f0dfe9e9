"""How long the text of rows is: bytes and code points of ``Tokenizer.decode``, special tokens included.

Byte-level vocabularies (GPT-2 and most since) are counted by a kernel from the bytes of each token, at 300 MB of text per CPU-second; others
are decoded, at 20. A row may begin or end inside a character: the broken bytes count as U+FFFD, which is what decoding shows.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders

from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.source import TokenizerSource, build

_REPLACEMENT_BYTES = 3
"""UTF-8 bytes of U+FFFD."""


@dataclass(frozen=True, eq=False)
class TokenBytes:
    """The bytes of every token, back to back."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]  # (vocab_size + 1,)


def _shown_bytes() -> dict[str, int]:
    """Return the byte behind each character of a byte-level vocabulary (GPT-2's ``bytes_to_unicode``)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


@lru_cache(maxsize=8)
def token_bytes(source: TokenizerSource) -> TokenBytes | None:
    """Return the bytes of a byte-level vocabulary, None for another kind."""
    tokenizer = build(source).tokenizer
    if not isinstance(tokenizer.decoder, decoders.ByteLevel):
        return None
    shown = _shown_bytes()
    found = [b""] * (build(source).max_id + 1)
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        is_shown = all(char in shown for char in token)
        found[number] = bytes(shown[char] for char in token) if is_shown else token.encode()
    starts = np.cumsum([0, *map(len, found)], dtype=np.int64)
    return TokenBytes(np.frombuffer(b"".join(found), np.uint8), starts)


@kernel
def _count_text(rows, data, starts):  # type: ignore[no-untyped-def]
    """Count bytes and code points of rows as lossy UTF-8: each longest beginning of a sequence that goes wrong is one U+FFFD."""
    total, chars = 0, 0
    for row in range(rows.shape[0]):
        need, low, high, have = 0, 0x80, 0xBF, 0
        for at in range(rows.shape[1]):
            token = rows[row, at]
            for place in range(starts[token], starts[token + 1]):
                byte = data[place]
                if need:
                    if low <= byte <= high:
                        need, low, high, have = need - 1, 0x80, 0xBF, have + 1
                        if need == 0:
                            total, chars = total + have, chars + 1
                        continue
                    total, chars, need = total + _REPLACEMENT_BYTES, chars + 1, 0
                low, high, have = 0x80, 0xBF, 1
                if byte < 0x80:
                    total, chars = total + 1, chars + 1
                elif 0xC2 <= byte <= 0xDF:
                    need = 1
                elif 0xE0 <= byte <= 0xEF:
                    need = 2
                    low = 0xA0 if byte == 0xE0 else 0x80
                    high = 0x9F if byte == 0xED else 0xBF
                elif 0xF0 <= byte <= 0xF4:
                    need = 3
                    low = 0x90 if byte == 0xF0 else 0x80
                    high = 0x8F if byte == 0xF4 else 0xBF
                else:
                    total, chars = total + _REPLACEMENT_BYTES, chars + 1
        if need:
            total, chars = total + _REPLACEMENT_BYTES, chars + 1
    return total, chars


def count_text(engine: TokenEngine, ids: NDArray[np.int32]) -> tuple[int, int]:
    """Return UTF-8 bytes and code points of rows of ids (n_rows, length) as text, each decoded by itself, padding included."""
    table = token_bytes(engine.source)
    if table is None:
        return _decoded(build(engine.source).tokenizer, ids)
    total, chars = _count_text(ids, table.data, table.starts)
    return int(total), int(chars)


def _decoded(tokenizer: Tokenizer, ids: NDArray[np.int32]) -> tuple[int, int]:
    texts = tokenizer.decode_batch(ids.tolist(), skip_special_tokens=False)
    return sum(len(text.encode()) for text in texts), sum(map(len, texts))
