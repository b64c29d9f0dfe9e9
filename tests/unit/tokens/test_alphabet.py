"""Characters that a tokenizer drops are named; a tokenizer that drops none is not asked."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from dolma_dask.formats.findings import LOST
from dolma_dask.tokens.engine import build, load_tokenizer

LETTERS = {letter: number for number, letter in enumerate("abc e")}
BYTES = {f"<0x{byte:02X}>": 5 + byte for byte in range(256)}
ALPHABET = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def bpe(vocabulary: dict[str, int], pre_tokenizer: object = None, **options: object) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocabulary, [], **options))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def lost(tokenizer: Tokenizer, *texts: str) -> list[tuple[int, str]]:
    found = load_tokenizer(tokenizer.to_str()).encode(pa.array(texts, pa.large_string())).findings
    assert all(one.kind == LOST for one in found)
    return [(one.row, one.what) for one in found]


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)


@pytest.mark.parametrize(
    ("tokenizer", "may_lose"),
    [
        (bpe(LETTERS), True),
        (bpe(LETTERS | {"[U]": 9}, unk_token="[U]"), False),
        (bpe(LETTERS | BYTES, byte_fallback=True), False),
        (bpe(LETTERS | dict(list(BYTES.items())[1:]), byte_fallback=True), True),
        (bpe(LETTERS | BYTES), True),
        (bpe(ALPHABET, BYTE_LEVEL), False),
        (bpe({byte: number for byte, number in ALPHABET.items() if byte != "a"}, BYTE_LEVEL), True),
        (bpe({byte: number for byte, number in ALPHABET.items() if byte not in "ÀÁõÿ"}, BYTE_LEVEL), False),
        (Tokenizer(models.WordLevel({"a": 0})), False),  # an error tells
    ],
)
def test_only_a_tokenizer_that_may_lose_is_asked(tokenizer: Tokenizer, may_lose: bool) -> None:
    assert (build(load_tokenizer(tokenizer.to_str())).alphabet is not None) == may_lose


@given(texts=st.lists(st.text("abxé日\x00 ", max_size=12), min_size=1, max_size=4))
def test_what_is_lost_is_what_has_no_token(texts: list[str]) -> None:
    tokenizer = bpe(LETTERS)
    tokens = load_tokenizer(tokenizer.to_str()).encode(pa.array(texts, pa.large_string()))
    counts = dict.fromkeys(range(len(texts)), 0) | {
        one.row: int(one.what.split(" of ")[0]) for one in tokens.findings
    }
    assert tokens.lengths.tolist() == [len(text) - counts[row] for row, text in enumerate(texts)]


def test_texts_as_the_model_sees_them() -> None:
    assert lost(bpe(LETTERS), "日本語 日本", "abc", "é") == [(0, "5 of 日 本 語"), (2, "1 of é")]
    composed = bpe(LETTERS)
    composed.normalizer = normalizers.NFC()
    assert lost(composed, "e", "e\u0301") == [(1, "1 of é")]
    decomposed = bpe(LETTERS)
    decomposed.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    assert lost(decomposed, "é") == []  # the normalizer wants it so
    words = bpe({"a": 0, "b": 1}, pre_tokenizers.Whitespace())
    assert lost(words, "a b\tb", "a ! b") == [(1, "1 of !")]
    spelled = bpe(LETTERS)
    spelled.add_special_tokens([AddedToken("<|x|>")])
    assert lost(spelled, "a<|x|>b", "a<|x|b") == [(1, "4 of < | x")]
    parts = bpe({"a": 0, "##a": 1, "b": 2}, continuing_subword_prefix="##")
    assert lost(parts, "aab", "b") == [(0, "1 of b")]
    pieces = bpe({"a": 0, "▁": 1}, pre_tokenizers.Metaspace())
    assert lost(pieces, "a a", "a\ta") == [(1, "1 of U+0009")]
