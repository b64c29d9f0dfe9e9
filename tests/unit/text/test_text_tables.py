"""The shipped classes are those of Python and of the regex package."""

import importlib.util
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import regex

from dolma_dask.text import tables

CODES = np.r_[0:0xD800, 0xE000:0x110000]
EVERY_CHAR = CODES.astype("<u4").tobytes().decode("utf-32-le")


@pytest.fixture(scope="module")
def classes():
    numbers, blocks = tables.load_tables()
    return blocks.reshape(-1, 256)[numbers].reshape(-1)


@pytest.fixture(scope="module")
def folds():
    numbers, blocks = tables.load_folds()
    return blocks.reshape(-1, 256)[numbers].reshape(-1)


def folded(entry):
    """The code points of an entry, as a text."""
    mask = (1 << tables.FOLDED) - 1
    codes = [int(entry) >> tables.FOLDED * place & mask for place in range(3)]
    return "".join(chr(code) for code in codes if code)


def matches(pattern):
    found = np.zeros(len(EVERY_CHAR), bool)
    found[[match.start() for match in regex.finditer(pattern, EVERY_CHAR)]] = True
    return found


def differ(classes, bit, expected, recorded, installed):
    """Code points where the table is not `expected`; newer versions may only differ where nothing was assigned."""
    wrong = (classes[CODES] & bit != 0) != expected
    if recorded != installed:
        wrong &= classes[CODES] & tables.ASSIGNED != 0
    return [hex(code) for code in CODES[wrong]]


def test_white_space_and_letters_are_those_of_str(classes):
    recorded, installed = tables.table_versions()[0], unicodedata.unidata_version
    spaces = np.array([char.isspace() for char in EVERY_CHAR])
    letters = np.array([char.isalpha() for char in EVERY_CHAR])
    assert differ(classes, tables.SPACE, spaces, recorded, installed) == []
    assert differ(classes, tables.LETTER, letters, recorded, installed) == []


def test_punctuation_is_that_of_the_pattern(classes):
    numbers, blocks = tables.load_punctuation()
    found = blocks.reshape(-1, 256)[numbers].reshape(-1) | classes & tables.ASSIGNED
    expected = matches(
        r"[[:punct:]]|\s|[\u2600-\u26ff]|[\u2700-\u27bf]|[\U0001f300-\U0001f64f]|[\U0001f680-\U0001f6ff]"
    )
    assert differ(found, 1, expected, tables.table_versions()[1], regex.__version__) == []


@pytest.mark.slow
def test_answers_of_str_methods(classes):
    numbers, blocks = tables.load_str_classes()
    found = blocks.reshape(-1, 256)[numbers].reshape(-1)
    answers = {
        tables.SPACE: str.isspace,
        tables.STR_WORD: re.compile(r"\w").match,
        tables.STR_UPPER: str.isupper,
        tables.STR_LOWER: lambda char: not (char + "A").isupper(),
        tables.STR_NUMERIC: str.isnumeric,
    }
    recorded, installed = tables.table_versions()[0], unicodedata.unidata_version
    for bit, answer in answers.items():
        wrong = (found[CODES] & bit != 0) != np.array([bool(answer(char)) for char in EVERY_CHAR])
        if recorded != installed:
            wrong &= classes[CODES] & tables.ASSIGNED != 0
        assert [hex(code) for code in CODES[wrong]] == []


def test_regex_classes_are_those_of_the_package(classes):
    recorded, installed = tables.table_versions()[1], regex.__version__
    assert differ(classes, tables.REGEX_WORD, matches(r"\w"), recorded, installed) == []
    assert differ(classes, tables.REGEX_SPACE, matches(r"\s"), recorded, installed) == []


def test_word_characters_are_those_the_rule_names(classes):
    """Marks, letters, decimal digits, connectors and the joiners: unlike `re`, which has no marks."""
    for char in "aß\u0301\u093f_\u203f٣\u200c\u200dⅧ":
        assert classes[ord(char)] & tables.REGEX_WORD, hex(ord(char))
    for char in " -²½\u200b\ufeff\u2026":
        assert not classes[ord(char)] & tables.REGEX_WORD, hex(ord(char))


def test_unit_separators_are_white_space_for_split_only(classes):
    for code in range(0x1C, 0x20):
        assert classes[code] & tables.SPACE
        assert not classes[code] & tables.REGEX_SPACE


def test_what_folds_is_folded_once_and_stays_of_its_kind(classes, folds):
    """So a kernel looks each character up once, and composed and decomposed forms come out alike."""
    kinds = tables.TOKEN | tables.ALONE
    for code in np.flatnonzero(classes & tables.FOLDS):
        made = folded(folds[code])
        assert made != chr(code)
        for char in made:
            assert classes[ord(char)] & (kinds | tables.FOLDS) == classes[code] & kinds, hex(code)
        decomposed = [ord(char) for char in unicodedata.normalize("NFD", chr(code))]
        parts = [folded(folds[part]) if classes[part] & tables.FOLDS else chr(part) for part in decomposed]
        assert "".join(parts) == made, hex(code)


def test_folds_are_those_the_rule_names(classes, folds):
    for char, made in {
        "É": "e",
        "ß": "ss",
        "ς": "σ",
        "Ａ": "a",
        "ﾊ": "ハ",
        "ガ": "カ",
        "́": "",
        "­": "",
    }.items():
        assert classes[ord(char)] & tables.FOLDS
        assert folded(folds[ord(char)]) == made
    assert classes[ord("が")] & tables.ALONE
    assert not classes[ord("한")] & (tables.ALONE | tables.FOLDS)
    assert not classes[ord("_")] & tables.TOKEN


def test_surrogates_have_no_class(classes):
    assert not classes[0xD800:0xE000].any()


@pytest.mark.slow
def test_tool_makes_the_shipped_arrays(classes, folds):
    path = Path(__file__).resolve().parents[3] / "tools" / "make_unicode_tables.py"
    spec = importlib.util.spec_from_file_location("make_unicode_tables", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for made, shipped in zip(tool.compress(classes), tables.load_tables(), strict=True):
        np.testing.assert_array_equal(made, shipped)
    for made, shipped in zip(tool.compress(folds), tables.load_folds(), strict=True):
        np.testing.assert_array_equal(made, shipped)
    if tables.table_versions() == (unicodedata.unidata_version, regex.__version__):
        few = np.r_[0:0x400, 0x2000:0x2100, 0xE0100:0xE0110]
        np.testing.assert_array_equal(tool.classify(few), classes[few])
        np.testing.assert_array_equal(tool.fold_table(classes), folds)


def test_decode_reads_every_length():
    data = np.frombuffer(
        EVERY_CHAR[::211].encode() + "\x00\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff".encode(), np.uint8
    )
    at, decoded = 0, []
    while at < data.size:
        code, width = tables.decode(data, at)
        decoded.append(chr(code))
        at += width
    assert "".join(decoded) == bytes(data).decode()


def test_holds_letter_stops_at_the_end():
    data = np.frombuffer("12 \u0301é".encode().ljust(64), np.uint8)
    assert not tables.holds_letter(data, 0, 5, *tables.load_tables())
    assert tables.holds_letter(data, 0, 7, *tables.load_tables())
