"""Ids, masks and labels against plain Python; chance by row number; the length of rows as text."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import RowCounts
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.lm import (
    check_short,
    count_text,
    make_rows,
    shorten,
    shorten_like_modelzoo,
    token_bytes,
)
from dolma_dask.tokens.packing import Windows, stream_windows


def plain_row(window: list[int], length: int, pad: int, inverted: bool) -> list[list[int]]:
    lack = length + 1 - len(window)
    mask = [int(not inverted)] * (len(window) - 1) + [int(inverted)] * lack
    return [window[:-1] + [pad] * lack, mask, window[1:] + [pad] * lack]


@given(st.lists(st.integers(0, 300), min_size=2, max_size=60), st.integers(1, 9), st.data())
def test_rows_are_those_of_plain_python(tokens, length, data):
    inverted = data.draw(st.booleans())
    eos = data.draw(st.sampled_from([None, 0, tokens[0]]))
    starts = data.draw(st.lists(st.integers(0, len(tokens) - 2), max_size=8))
    sizes = [data.draw(st.integers(2, min(length + 1, len(tokens) - start))) for start in starts]
    windows = Windows(np.array(starts, np.int64), np.array(sizes, np.int64))
    rows, counts = make_rows(
        np.array(tokens, np.int32), windows, length, eos_id=eos, pad_id=7, inverted_mask=inverted
    )
    cut = [tokens[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert rows.tolist() == [plain_row(window, length, 7, inverted) for window in cut]
    assert rows.dtype == np.int32
    filled = sum(size - 1 for size in sizes)
    assert counts == RowCounts(
        rows=len(cut),
        tokens=len(cut) * length,
        pad_tokens=len(cut) * length - filled,
        loss_tokens=filled,
        eos_tokens=sum(token == eos for window in cut for token in window[:-1]),
    )


def test_chance_depends_on_the_number_of_the_row_alone():
    whole = stream_windows(0, 5000, 5000 * 64 + 1, 64)
    cut = shorten(whole, 0, 0.25, 3, 64)
    for first, stop in ((0, 1), (17, 400), (4999, 5000)):
        part = shorten(whole.slice(first, stop), first, 0.25, 3, 64)
        assert np.array_equal(part.sizes, cut.sizes[first:stop])
    short = cut.sizes[cut.sizes < 65]
    assert 0.23 < len(short) / 5000 < 0.27
    assert short.min() >= 2
    assert short.max() <= 63
    assert len(set(short.tolist())) == 62, "every size occurs"
    assert not np.array_equal(shorten(whole, 0, 0.25, 4, 64).sizes, cut.sizes)
    assert shorten(whole, 0, 0.0, 3, 64) is whole


def test_chance_like_that_of_the_original():
    whole = stream_windows(0, 300, 300 * 32 + 1, 32)
    drawn, expected = random.Random(5), []
    for _ in range(300):
        expected.append(drawn.randint(2, 31) if drawn.random() < 0.3 else 33)
    assert shorten_like_modelzoo(whole, 0, 0.3, 5, 32).sizes.tolist() == expected
    part = shorten_like_modelzoo(whole.slice(100, 110), 100, 0.3, 5, 32)
    assert part.sizes.tolist() == expected[100:110]


@pytest.mark.parametrize(("probability", "length"), [(-0.1, 8), (1.1, 8), (0.5, 2)])
def test_impossible_chances(probability, length):
    with pytest.raises(UsageError):
        check_short(probability, length)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer = train_tokenizer(["naïve café 日本語 \U0001f600"] * 3, path, 300)
    tokenizer.add_tokens(["   ", "ünder score", "\u2028"])
    tokenizer.save(str(path))
    return load_tokenizer(path)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_length_of_rows_as_text_is_that_of_decoding(byte_level, data):
    """Rows of any ids, so that characters are broken everywhere."""
    length = data.draw(st.integers(1, 12))
    ids = st.lists(st.integers(0, byte_level.max_id), min_size=length, max_size=length)
    rows = data.draw(st.lists(ids, max_size=6))
    assert token_bytes(byte_level) is not None
    tokenizer = Tokenizer.from_str(byte_level.read())
    texts = tokenizer.decode_batch(rows, skip_special_tokens=False)
    expected = (sum(len(text.encode()) for text in texts), sum(map(len, texts)))
    assert count_text(byte_level, np.array(rows, np.int32).reshape(-1, length)) == expected


def test_length_of_rows_of_another_vocabulary():
    tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    engine = load_tokenizer(tokenizer.to_str())
    assert token_bytes(engine) is None
    assert count_text(engine, np.array([[0, 1], [1, 1]], np.int32)) == (14, 14)
    tokenizer.decoder = decoders.WordPiece()
    assert token_bytes(load_tokenizer(tokenizer.to_str())) is None
