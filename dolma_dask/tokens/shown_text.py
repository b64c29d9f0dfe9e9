"""Rows of ids as text (``Tokenizer.decode``, special tokens included), and the length of it, as `data_params.json` tells it.

Byte-level vocabularies (GPT-2 and most since) go through a kernel, from the bytes of each token, at 300 MB of text per CPU-second; others are decoded, at
20. A row may begin or end inside a character: the broken bytes count as U+FFFD, which is what decoding shows.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from tokenizers import decoders

from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.alphabet import shown_bytes
from dolma_dask.tokens.engine import TokenEngine, build
from dolma_dask.tokens.packing import Int64s

_REPLACEMENT_BYTES = 3
"""UTF-8 bytes of U+FFFD."""


@lru_cache(maxsize=8)
def token_bytes(engine: TokenEngine) -> tuple[NDArray[np.uint8], Int64s, Int64s] | None:
    """Return the bytes of all tokens of a byte-level vocabulary, back to back, where each starts, and the sizes of each: bytes in the upper half of the number,
    code points in the lower; -1 if it is no whole characters.

    None for a vocabulary of another kind.
    """
    tokenizer, max_id, *_ = build(engine)
    if not isinstance(tokenizer.decoder, decoders.ByteLevel):
        return None
    # the characters that show bytes become these bytes in Latin-1, all others what Latin-1 lacks
    table = dict.fromkeys(range(256), "\uffff") | {
        ord(char): chr(byte) for char, byte in shown_bytes().items()
    }
    # added tokens come back as the normalizer left them
    names = {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}
    added = tokenizer.get_added_tokens_decoder()
    names |= {number: token for number in added if (token := tokenizer.id_to_token(number)) is not None}
    texts = [b""] * (max_id + 1)
    for number, token in names.items():
        try:
            texts[number] = token.translate(table).encode("latin-1")
        except UnicodeEncodeError:
            texts[number] = token.encode()
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    sizes = np.array([_sizes(text) for text in texts], np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), starts, sizes


_HALF, _CHARS = 32, 2**32 - 1
"""Bits of the lower half of a number that holds two, and what stands there: code points; bytes stand above."""


def _sizes(data: bytes) -> int:
    """Count bytes and code points; -1 for bytes that begin or end inside a character, or are no UTF-8."""
    try:
        return len(data) << _HALF | (len(data) if data.isascii() else len(data.decode()))
    except UnicodeDecodeError:
        return -1


@kernel
def _count_text(rows, data, starts, sizes, counts):  # type: ignore[no-untyped-def]
    """Count bytes and code points of each row as lossy UTF-8: each longest beginning of a sequence that goes wrong is one U+FFFD.

    A token of whole characters behind another is not looked into.
    """
    for row in range(rows.shape[0]):
        total, chars, whole = 0, 0, 0
        need, low, high, have = 0, 0x80, 0xBF, 0
        for at in range(rows.shape[1]):
            token = rows[row, at]
            if need == 0 and sizes[token] >= 0:
                whole += sizes[token]
                continue
            for position in range(starts[token], starts[token + 1]):
                byte = data[position]
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
        counts[row, 0] = total + (whole >> _HALF)
        counts[row, 1] = chars + (whole & _CHARS)


def count_text(engine: TokenEngine, ids: NDArray[np.int32]) -> Int64s:
    """Return UTF-8 bytes and code points (n_rows, 2) of rows of ids (n_rows, length) as text, each decoded by itself, padding included."""
    table = token_bytes(engine)
    if table is None:
        texts = build(engine).tokenizer.decode_batch(ids.tolist(), skip_special_tokens=False)
        return np.array([(len(text.encode()), len(text)) for text in texts], np.int64).reshape(-1, 2)
    counts = np.empty((len(ids), 2), np.int64)
    _count_text(ids, *table, counts)
    return counts


def decoded(engine: TokenEngine, pieces: Sequence[NDArray[np.int32]]) -> list[str]:
    """Return the text of each piece of ids, special tokens included, as ``Tokenizer.decode`` makes it."""
    table = token_bytes(engine)
    if table is None or not pieces:
        ids_of_each = [piece.tolist() for piece in pieces]
        texts: list[str] = build(engine).tokenizer.decode_batch(ids_of_each, skip_special_tokens=False)
        return texts
    data, starts, _ = table
    ids = np.concatenate(pieces)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(starts[ids + 1] - starts[ids])])
    spelled = np.empty(int(ends[-1]), np.uint8)
    _spell(ids, data, starts, spelled)
    text = spelled.tobytes()
    bounds = ends[np.concatenate([[0], np.cumsum([piece.size for piece in pieces])])].tolist()
    return [text[begin:end].decode("utf-8", "replace") for begin, end in pairwise(bounds)]


@kernel
def _spell(ids, data, starts, text):  # type: ignore[no-untyped-def]
    """Write the bytes of tokens, one behind the other."""
    end = 0
    for token in ids:
        for place in range(starts[token], starts[token + 1]):
            text[end] = data[place]
            end += 1
