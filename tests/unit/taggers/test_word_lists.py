"""Lists of words and of domains as tables: every entry is found, in its language, and nothing else."""

import io
import json

import pyarrow as pa
import pytest

from dolma_dask.errors import DataError
from dolma_dask.taggers import word_lists
from dolma_dask.taggers.word_lists import (
    Domains,
    WordLists,
    hash_strings,
    holds,
    read_lines,
    read_stop_words,
    stop_words,
)


def test_every_stop_word_is_found_in_its_language_alone():
    lists, table = read_stop_words(), stop_words()
    rows = table.rows(pa.array([*lists, "xx", None], pa.large_string())).tolist()
    assert rows == [*range(len(lists)), len(lists), len(lists)]
    words = sorted(set().union(*lists.values()))
    hashes = hash_strings(pa.array(words, pa.large_string()))
    for salt, listed in zip(table.salts[:-1], map(set, lists.values()), strict=True):
        found = {word for word, key in zip(words, hashes, strict=True) if holds(table.table, key ^ salt)}
        assert found == listed


def test_no_lists():
    table = WordLists.of({})
    assert table.sizes.tolist() == [[0]]
    assert table.rows(pa.array(["en"], pa.large_string())).tolist() == [0]


def test_sizes_of_phrases():
    table = WordLists.of({"en": ["a", "a b c", "d e f", ""], "de": []})
    assert table.sizes.tolist() == [[1, 3, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 22])
@pytest.mark.parametrize("indent", [None, 1])
def test_domains_are_read_in_pieces(monkeypatch, chunk, indent):
    monkeypatch.setattr(word_lists, "_CHUNK", chunk)
    numbers = {f"site{k}.example": k * 31 % 8191 for k in range(50)} | {"münchen.example": 7}
    domains = Domains.read(io.BytesIO(json.dumps(numbers, indent=indent).encode()), "d.json")
    asked = [*numbers, "www.site3.example", "", None]
    found = domains.find(pa.array(asked, pa.large_string())).to_pylist()
    assert found == [*map(float, numbers.values()), None, None, None]


def test_no_domains():
    domains = Domains.read(io.BytesIO(b"{}"), "d.json")
    assert domains.find(pa.array(["a.example", None], pa.large_string())).to_pylist() == [None, None]


@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_domains_of_categories(monkeypatch, chunk):
    monkeypatch.setattr(word_lists, "_CHUNK", chunk)
    lists = {"porn": b"a.example\nb.example \r\n\n", "adult": b"b.example\nc.example", "chat": b""}
    domains = Domains.of_categories({name: io.BytesIO(data) for name, data in lists.items()})
    asked = pa.array(["a.example", "b.example", "c.example", "d.example", ""], pa.large_string())
    numbers = list(word_lists.combinations_of_categories())
    expected = [numbers.index(("porn",)), numbers.index(("adult", "porn")), numbers.index(("adult",))]
    assert domains.find(asked).to_pylist() == [*map(float, expected), None, None]


@pytest.mark.parametrize(
    "data",
    [
        b'{"a.example":3',
        b'{"a.example":-1}',
        b'{"a.example":9007199254740993}',
        b'{"a.example":' + b"9" * 30 + b"}",
        b'{"\xe9.example":1}',
    ],
)
def test_numbers_of_domains_that_are_none(data):
    with pytest.raises(DataError, match=r"d.json: .*; expected a JSON object with a number for each domain"):
        Domains.read(io.BytesIO(data), "d.json")


def test_lists_are_utf8_with_or_without_a_mark():
    assert read_lines(io.BytesIO(b"\xef\xbb\xbfcaf\xc3\xa9 \r\nto be"), "en.txt") == ["café", "", "to be"]
    with pytest.raises(DataError, match=r"en.txt: not UTF-8 at byte 3 .*Save it as UTF-8"):
        read_lines(io.BytesIO(b"caf\xe9\n"), "en.txt")
    domains = Domains.of_categories({"adult": io.BytesIO(b"\xef\xbb\xbfa.example\n")})
    assert domains.find(pa.array(["a.example"], pa.large_string())).to_pylist() == [0]
