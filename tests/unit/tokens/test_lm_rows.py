"""Ids, masks and labels against plain Python; chance by row number; the length of rows as text."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import RowCounts
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.filling import UNPREDICTED, fill_rows
from dolma_dask.tokens.packing import Rows, Segments
from dolma_dask.tokens.shortening import check_short, short_sizes, short_sizes_like_modelzoo
from dolma_dask.tokens.shown_text import count_text, decoded, token_bytes


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
    segments = Segments(np.array(starts, np.int64), np.array(sizes, np.int64))
    rows, counts = fill_rows(
        np.array(tokens, np.int32),
        Rows.of(segments),
        (3, length),
        eos_id=eos,
        pad_id=7,
        inverted_mask=inverted,
    )
    cut = [tokens[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert rows.tolist() == [plain_row(window, length, 7, inverted) for window in cut]
    assert rows.dtype == np.int32
    filled = sum(size - 1 for size in sizes)
    assert RowCounts.of(np.pad(counts, ((0, 0), (0, 2))), length) == RowCounts(
        rows=len(cut),
        tokens=len(cut) * length,
        pad_tokens=len(cut) * length - filled,
        loss_tokens=filled,
        eos_tokens=sum(token == eos for window in cut for token in window[:-1]),
    )


def plain_packed_row(segments: list[list[tuple[int, bool]]], length: int, pad: int) -> list[list[int]]:
    """Return the five channels of a row of segments of (id, whether it is predicted)."""
    channels: list[list[int]] = [[], [], [], [], []]
    for segment in segments:
        count = len(segment) - 1
        for place, ((token, _), (after, counts)) in enumerate(pairwise(segment)):
            for channel, value in zip(
                channels, (token, int(counts), after, count - 1 - place, place), strict=True
            ):
                channel.append(value)
    fills = (pad, 0, pad, 0, 0)
    return [channel + [fill] * (length - len(channel)) for channel, fill in zip(channels, fills, strict=True)]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=2, max_size=6), max_size=12),
    st.data(),
)
def test_packed_rows_are_those_of_plain_python(segments, data):
    length = 30
    rows: list[list[int]] = [[]]
    for number, segment in enumerate(segments):
        left = length - sum(len(segments[one]) - 1 for one in rows[-1])
        if len(segment) - 1 > left or data.draw(st.booleans()):
            rows.append([])
        rows[-1].append(number)
    rows = [row for row in rows if row]
    flat = [pair for segment in segments for pair in segment]
    words = np.array([token if counts else token | UNPREDICTED for token, counts in flat], np.int32)
    sizes = np.array([len(segment) for segment in segments], np.int64)
    found, counts = fill_rows(
        words,
        Rows(Segments(np.cumsum(sizes) - sizes, sizes), np.cumsum([0, *map(len, rows)])),
        (5, length),
        eos_id=3,
        pad_id=7,
    )
    expected = [plain_packed_row([segments[one] for one in row], length, 7) for row in rows]
    assert found.tolist() == expected
    assert counts[:, 1].tolist() == [sum(row[1]) for row in expected]


def test_chance_depends_on_the_number_of_the_row_alone():
    cut = short_sizes(0, 0.25, 3, 64)(5000)
    for first, stop in ((0, 1), (17, 400), (4999, 5000)):
        sizes = short_sizes(first, 0.25, 3, 64)
        half = (stop - first) // 2
        assert np.array_equal(np.concatenate([sizes(half), sizes(stop - first - half)]), cut[first:stop])
    short = cut[cut < 65]
    assert 0.23 < len(short) / 5000 < 0.27
    assert short.min() >= 2
    assert short.max() <= 63
    assert len(set(short.tolist())) == 62, "every size occurs"
    assert not np.array_equal(short_sizes(0, 0.25, 4, 64)(5000), cut)


def test_chance_like_that_of_the_original():
    drawn, expected = random.Random(5), []
    for _ in range(300):
        expected.append(drawn.randint(2, 31) if drawn.random() < 0.3 else 33)
    assert short_sizes_like_modelzoo(0, 0.3, 5, 32)(300).tolist() == expected
    assert short_sizes_like_modelzoo(100, 0.3, 5, 32)(10).tolist() == expected[100:110]


def test_rows_that_are_too_short_to_be_cut():
    check_short(0.0, 2)
    check_short(0.5, 3)
    with pytest.raises(UsageError, match="expected rows of more than 2 tokens"):
        check_short(0.5, 2)


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
    counts = count_text(byte_level, np.array(rows, np.int32).reshape(-1, length))
    assert tuple(counts.sum(axis=0).tolist()) == expected
    assert counts[:, 1].tolist() == [len(text) for text in texts]
    assert decoded(byte_level, [np.array(row, np.int32) for row in rows]) == texts


@pytest.mark.parametrize("normalizer", [normalizers.NFD(), normalizers.Lowercase(), normalizers.Strip()])
def test_added_tokens_are_shown_as_the_normalizer_leaves_them(byte_level, normalizer):
    tokenizer = Tokenizer.from_str(byte_level.read())
    tokenizer.normalizer = normalizer
    tokenizer.add_tokens([AddedToken(name, normalized=True) for name in ("f\u00e9", "BIG", " both ")])
    engine = load_tokenizer(tokenizer.to_str())
    rows = np.arange(tokenizer.get_vocab_size(), dtype=np.int32)[:, None]
    texts = tokenizer.decode_batch(rows.tolist(), skip_special_tokens=False)
    assert decoded(engine, list(rows)) == texts
    assert count_text(engine, rows).tolist() == [[len(text.encode()), len(text)] for text in texts]


def test_length_of_rows_of_another_vocabulary():
    tokenizer = Tokenizer(models.WordLevel({"one": 0, "two": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    engine = load_tokenizer(tokenizer.to_str())
    assert token_bytes(engine) is None
    rows = np.array([[0, 1], [1, 1]], np.int32)
    assert count_text(engine, rows).tolist() == [[7, 7], [7, 7]]
    assert decoded(engine, list(rows)) == ["one two", "two two"]
    tokenizer.decoder = decoders.WordPiece()
    assert token_bytes(load_tokenizer(tokenizer.to_str())) is None
