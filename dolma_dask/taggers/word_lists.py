"""Lists of words and phrases by language, and of domains, as tables of 64-bit hashes for kernels.

A phrase of several words is the chain of their hashes, so that it is found in a text without joining its words. Two different ones are taken for equal
once in 2**64 pairs.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.text import compute as pc
from dolma_dask.text.bits import hash_bytes, mix
from dolma_dask.text.columns import for_kernel, string_parts
from dolma_dask.text.kernels import Bytes, Counts, Int, Words, kernel

CATEGORIES = (
    "adult", "agressif", "agressive", "arjel", "chat", "dating", "ddos", "filehosting", "gambling", "mixed_adult", "phishing", "porn", "violence",
)  # fmt: skip
"""Categories of UT1 that RedPajama-V2 numbers the combinations of."""

STOP_WORDS = Path(__file__).with_name("stop_words.json")
"""Stop words of seven languages: stopwords-json 1.2.0 (Apache 2.0), the lists that RedPajama-Data uses."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_NONE, _ONE = np.uint64(0), np.uint64(1)
_BUCKET = 4
"""Slots that may hold a key."""
_CHUNK = 1 << 22

_Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""That of a domain; a score is a double, which holds each of them."""


@kernel
def chain(before: np.uint64, word: np.uint64) -> np.uint64:
    """Hash of a phrase with one more word."""
    return mix(before + word * _FACTOR)


@kernel
def holds(table: Words, key: np.uint64) -> Int:
    """Return 1 if a table of `table_of` has this key, else 0; without a branch, since what comes cannot be predicted."""
    # the mask is without the lowest bits, so that it gives the first slot of a bucket
    bucket = np.int64(key & np.uint64(table.size - _BUCKET))
    found: Int = 0
    for slot in range(_BUCKET):
        found |= table[bucket + slot] == key
    return found


@kernel
def _fill(table: Words, keys: Words) -> bool:
    """Put every key into its bucket; tell whether there was room."""
    for at in range(keys.size):
        bucket = np.int64(keys[at] & np.uint64(table.size - _BUCKET))
        slot: Int = 0
        while slot < _BUCKET and table[bucket + slot] != _NONE:
            slot += 1
        if slot == _BUCKET:
            # the caller takes a larger table; no key lies outside of its bucket, so that `holds` looks at one
            # alone
            return False
        table[bucket + slot] = keys[at]
    return True


def table_of(keys: Words) -> Words:
    """Return a table of a power of two of slots, in which a key lies in the bucket that its bits name; 0, which is no key, in those that are free."""
    table = np.zeros(2 * _BUCKET, np.uint64)
    while not _fill(table, keys):
        table = np.zeros(2 * len(table), np.uint64)
    return for_kernel(table)


@kernel
def _hash_all(data: Bytes, offsets: Counts, hashes: Words) -> None:
    for at in range(hashes.size):
        hashes[at] = hash_bytes(data, offsets[at], offsets[at + 1])


@kernel
def _hash_phrases(words: Words, bounds: Counts, salts: Words, keys: Words) -> None:
    for phrase in range(keys.size):
        key = words[bounds[phrase]]
        for at in range(bounds[phrase] + 1, bounds[phrase + 1]):
            key = chain(key, words[at])
        keys[phrase] = key ^ salts[phrase]


def hash_strings(strings: pa.LargeStringArray) -> Words:
    """Hash each string (n,), see `dolma_dask.text.bits.hash_bytes`; a null like an empty one."""
    offsets, data = string_parts(strings)
    hashes = np.empty(len(strings), np.uint64)
    _hash_all(data, offsets, hashes)
    return hashes


class WordLists(Struct, frozen=True, eq=False):
    """Phrases by language; `salts` and `sizes` have a last row for all other languages, which have none.

    A phrase is in the list of a language if the table holds its hash xor the salt.
    """

    languages: pa.LargeStringArray  # (languages,)
    salts: Words  # (languages + 1,) the last is 0
    sizes: Counts  # (languages + 1, most) the numbers of words that phrases have, then 0
    table: Words  # see `table_of`

    @classmethod
    def of(cls, lists: Mapping[str, Iterable[str]]) -> "WordLists":
        """Make the table of phrases whose words are parted by single blanks."""
        phrases = [
            (number, phrase.split(" "))
            for number, name in enumerate(lists)
            for phrase in sorted({*lists[name]} - {""})
        ]
        words = hash_strings(pa.array([word for _, phrase in phrases for word in phrase], pa.large_string()))
        bounds = np.cumsum([0, *(len(phrase) for _, phrase in phrases)], dtype=np.int64)
        titles = [f"words of {name}" for name in lists]  # no hash of a word
        salts = np.append(hash_strings(pa.array(titles, pa.large_string())) | _ONE, _NONE)
        keys = np.empty(len(phrases), np.uint64)
        _hash_phrases(words, bounds, salts[[number for number, _ in phrases]], keys)
        languages = pa.array(list(lists), pa.large_string())
        return cls(languages, salts, _sizes(phrases, len(lists)), table_of(keys[keys != 0]))

    def rows(self, languages: pa.LargeStringArray) -> npt.NDArray[np.int64]:
        """Return the row of each language (n,) in `salts` and `sizes`."""
        found = pc.index_in(languages, value_set=self.languages)
        return np.asarray(pc.fill_null(found, len(self.languages)).cast(pa.int64()))


def _sizes(phrases: Iterable[tuple[int, list[str]]], languages: int) -> Counts:
    by_language: list[set[int]] = [set() for _ in range(languages + 1)]
    for number, phrase in phrases:
        by_language[number].add(len(phrase))
    sizes = np.zeros((languages + 1, max(map(len, by_language)) + 1), np.int64)
    for number, found in enumerate(by_language):
        sizes[number, : len(found)] = sorted(found)
    return sizes


def read_lines(file: BinaryIO, name: str) -> list[str]:
    """Return the lines of a list, without the white space around them and without a byte order mark; raise `DataError` if it is no text."""
    try:
        text = file.read().removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: not UTF-8 at byte {error.start:,} ({error.reason}); expected a phrase in each line. Save it as UTF-8.",
            name=name,
        ) from None
    return [line.strip() for line in text.replace("\r", "\n").split("\n")]


def read_stop_words() -> dict[str, list[str]]:
    """Return the stop words of `STOP_WORDS` by language."""
    lists: dict[str, list[str]] = json.loads(STOP_WORDS.read_text(encoding="utf-8"))
    return lists


@cache
def stop_words() -> WordLists:
    """Return the same as a table."""
    return WordLists.of(read_stop_words())


class Domains(Struct, frozen=True, eq=False):
    """A number for each of some domains."""

    keys: Words  # (domains,) hashes, rising
    ids: npt.NDArray[np.int64]  # (domains,)

    @classmethod
    def read(cls, file: BinaryIO, name: str) -> "Domains":
        """Read a JSON object of numbers by domain, some MB at a time; raise `DataError` if it is none."""
        keys, ids, rest = [np.empty(0, np.uint64)], [np.empty(0, np.int64)], b""
        opening = b""  # of the pieces behind the first
        while chunk := file.read(_CHUNK):
            head, comma, rest = (rest + chunk).rpartition(b",")
            if comma:
                _read_piece(opening + head + b"}", name, keys, ids)
                opening = b"{"
        _read_piece(opening + rest, name, keys, ids)
        every, numbers = np.concatenate(keys), np.concatenate(ids)
        order = np.argsort(every, kind="stable")
        return cls(every[order], numbers[order])

    @classmethod
    def of_categories(cls, lists: Mapping[str, BinaryIO]) -> "Domains":
        """Read the domains of each of `CATEGORIES`, one in a line, some MB at a time, and number the combinations of categories that they are in."""
        parts = [
            (hashes, 1 << CATEGORIES.index(name))
            for name, file in lists.items()
            for hashes in _hash_lines(file)
        ]
        keys, places = np.unique(np.concatenate([hashes for hashes, _ in parts]), return_inverse=True)
        marks = np.zeros(len(keys), np.int64)
        np.bitwise_or.at(
            marks, places, np.repeat([mark for _, mark in parts], [len(hashes) for hashes, _ in parts])
        )
        return cls(keys, _numbers_of_marks()[marks])

    def find(self, domains: pa.LargeStringArray) -> pa.Array:
        """Return the number of each domain (n,), null where it is not listed."""
        hashes = hash_strings(domains)
        places = np.searchsorted(self.keys, hashes)
        found = places < len(self.keys)
        places[~found] = 0
        found &= self.keys[places] == hashes if len(self.keys) else False
        ids = self.ids[places] if len(self.keys) else places
        return pa.array(ids, pa.float64(), mask=~(found & np.asarray(domains.is_valid())))


def combinations_of_categories() -> Iterator[tuple[str, ...]]:
    """Yield the combinations of `CATEGORIES` in the order of their numbers, from 0: those of one, of two, and so on."""
    for size in range(1, len(CATEGORIES) + 1):
        yield from combinations(CATEGORIES, size)


@cache
def _numbers_of_marks() -> npt.NDArray[np.int64]:
    """Return the number of each combination, by the sum of the bits of its categories."""
    numbers = np.full(1 << len(CATEGORIES), -1)
    for number, names in enumerate(combinations_of_categories()):
        numbers[sum(1 << CATEGORIES.index(name) for name in names)] = number
    return numbers


def _hash_lines(file: BinaryIO) -> Iterator[Words]:
    """Yield the hashes of the lines that are not empty, without the white space around them."""
    rest = file.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
    while chunk := file.read(_CHUNK):
        head, newline, rest = (rest + chunk).rpartition(b"\n")
        yield _hash_texts(head + newline)
    yield _hash_texts(rest)


def _hash_texts(lines: bytes) -> Words:
    texts = [line.strip() for line in lines.split(b"\n")]
    return hash_strings(pa.array([text for text in texts if text], pa.large_binary()))


def _read_piece(piece: bytes, name: str, keys: list[Words], ids: list[npt.NDArray[np.int64]]) -> None:
    try:
        numbers = msgspec.json.decode(piece, type=dict[str, _Number])
    except NOT_JSON as error:
        raise DataError(
            f'{name}: {error}; expected a JSON object with a number for each domain, as {{"a.example": 8}}, which RedPajama-Data makes of the lists of UT1.',
            name=name,
        ) from error
    keys.append(hash_strings(pa.array(list(numbers), pa.large_string())))
    ids.append(np.fromiter(numbers.values(), np.int64, len(numbers)))
