"""Health of a text: shares of what is no text, or text that went wrong on its way, with a limit for each (`LIMITS`).

- Shares are of the code points of the text, 0 for an empty one; of ``roff``, ``repeated_lines`` and ``mixed_words`` of the lines that are not blank and of the words with a letter.
- ``mojibake``: characters that are UTF-8 read as Windows-1252 or Latin-1 (`dolma_dask.text.mojibake`). ``controls``: U+0000 to U+009F without tab, newline, form feed,
  carriage return and what can be seen. ``html``, ``wiki``, ``latex``: `dolma_dask.text.markup`.
- ``script``: code points of lines that are code of scripts, styles or JSON: they hold a brace and one of ``;=():``; or end with ``);``, or with a semicolon behind a ``=``; or consist
  of brackets and semicolons; or hold ``":`` and another quote. ``roff``: lines that begin with a request (a point and one or two letters, then a blank or the end; ``.\\"``,
  ``'\\"``), or hold an escape of a font, a string or one of the commonest signs.
- ``foreign_letters``: letters outside of the script that most letters have (`dolma_dask.text.scripts`), by all letters. ``mixed_words``: words in which a letter of Latin,
  Greek or Cyrillic stands beside one of another of the three.
- ``repeated_lines``: lines that occur more than once in the text.
- ``cut_off``: 1 where the text ends with an ellipsis or "[more]", 0.5 where it ends with no mark that ends a sentence (closing quotes, brackets and asterisks left out), else 0.
- ``encoded``: code points in runs of 40 or more ASCII letters, digits, ``+``, ``/``, ``=`` with a digit among them: base64 and hexadecimal. ``longest_word``: code points of the
  longest run without white space.

`health_language_v1`, beside them, tells the language and how far it is in doubt (`dolma_dask.taggers.health_languages`). Lines that many documents have are looked for in all of
them together: ``dedupe --unit paragraph --min-copies``, whose share has a limit too (`dolma_dask.pages.junk`).

The limits are measured on planted messes, by ``benchmarks/bench_health.py``.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from dolma_dask.taggers.base import Part, ViewTagger
from dolma_dask.taggers.health_languages import DOUBT, Languages, score_language
from dolma_dask.text.bits import ONE, count_bits, first_bit, load8, low_bits, range_bits
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, Positions, Words, kernel
from dolma_dask.text.markup import HTML, LATEX, WIKI, count_markup, is_letter, load_tags
from dolma_dask.text.mojibake import count_mojibake, load_bytes, load_leads
from dolma_dask.text.ngrams import count_duplicates, table_slots
from dolma_dask.text.scripts import CYRILLIC, LATIN, NO_SCRIPT, SCRIPTS, load_scripts, script_of
from dolma_dask.text.tables import LETTER, char_class, code_points, decode, load_tables
from dolma_dask.text.units import is_blank
from dolma_dask.text.view import TextView
from dolma_dask.text.words import LETTER as HAS_LETTER

MEANINGS = {
    "mojibake": "characters of UTF-8 that was read as Windows-1252 or Latin-1, such as \N{LATIN CAPITAL LETTER A WITH TILDE}\N{COPYRIGHT SIGN}, by all characters",
    "replacements": "replacement characters (U+FFFD), by all characters",
    "controls": "control characters other than tab and line ends, by all characters",
    "html": "characters of HTML tags and entities, by all characters",
    "script": "characters of lines of scripts, styles and JSON, by all characters",
    "roff": "lines with requests or escapes of manual pages, by all lines that are not blank",
    "wiki": "characters of wiki links, templates and headings, by all characters",
    "latex": "characters of LaTeX commands, by all characters",
    "foreign_letters": "letters outside of the main script of the text, by all letters",
    "mixed_words": "words in which Latin, Greek and Cyrillic letters meet, by all words with a letter",
    "repeated_lines": "lines that occur more than once, by all lines that are not blank",
    "cut_off": "1: the text ends with an ellipsis or [more]; 0.5: without the end of a sentence; else 0",
    "encoded": "characters in long runs of base64 or hexadecimal digits, by all characters",
    "longest_word": "characters of the longest run without white space",
}
LIMITS: Mapping[str, float] = {
    "mojibake": 0.0001,
    "replacements": 0.0005,
    "controls": 0.0005,
    "html": 0.001,
    "script": 0.02,
    "roff": 0.05,
    "wiki": 0.02,
    "latex": 0.01,
    "foreign_letters": 0.3,
    "mixed_words": 0.01,
    "repeated_lines": 0.3,
    "cut_off": 0.5,
    "encoded": 0.02,
    "longest_word": 500,
}
"""Values above which a text is taken for junk."""

(
    _MOJIBAKE, _REPLACEMENTS, _CONTROLS, _HTML, _SCRIPT, _ROFF, _WIKI, _LATEX, _FOREIGN, _MIXED, _REPEATED, _CUT_OFF, _ENCODED, _LONGEST
) = range(len(MEANINGS))  # fmt: skip
_RUN = 40
"""Characters of the shortest run that is encoded."""

_TAB, _NEWLINE, _FORM_FEED, _RETURN, _BLANK, _DELETE = (
    np.uint8(byte) for byte in (0x09, 0x0A, 0x0C, 0x0D, 0x20, 0x7F)
)
_UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "AZaz")
_OPEN, _CLOSE, _QUOTE, _COLON, _SEMICOLON, _EQUALS = (np.uint8(ord(char)) for char in '()":;=')
_OPEN_BRACE, _CLOSE_BRACE, _BACKSLASH = (np.uint8(ord(char)) for char in "{}\\")
_POINTS, _ELLIPSIS, _MORE = (
    int.from_bytes(word.encode(), "little") for word in ("...", "\N{HORIZONTAL ELLIPSIS}", "more")
)
_ENDS = tuple(map(ord, ".!?\u2026\u3002\u0964\u061f\u06d4\uff01\uff1f\uff0e"))
_CLOSERS = tuple(map(ord, "\"')]*_`\xbb\u2019\u201d\uff09\u300d\u300f"))
_CODE_SIGNS, _FONTS, _QUOTES = (tuple(map(ord, signs)) for signs in ("{};()[], \t", "BIRPC([", "adlroc"))
_SIGNS = tuple(int.from_bytes(name, "big") for name in (b"bu", b"em", b"en", b"co"))
_LAST_CONTROL, _C2, _EF = np.uint8(0x1F), np.uint8(0xC2), np.uint8(0xEF)


# ------------------------------------------------------------------------------------------------ characters


@kernel
def _count_bytes(data: Bytes, begin: Int, end: Int) -> tuple[Int, Int, Int]:
    """Count (ASCII letters, control characters, replacement characters) from byte `begin` to `end`."""
    letters, controls, replacements = np.int64(0), np.int64(0), np.int64(0)
    at = begin
    while at < end:
        inside = low_bits(end - at)
        found = range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
        letters += count_bits(found & inside)
        found = range_bits(data, at, np.uint8(0), _LAST_CONTROL) | range_bits(data, at, _DELETE, _DELETE)
        found &= ~(range_bits(data, at, _TAB, _NEWLINE) | range_bits(data, at, _FORM_FEED, _RETURN))
        controls += count_bits(found & inside)
        found = range_bits(data, at, _C2, _C2) | range_bits(data, at, _EF, _EF)
        found &= inside
        # few: no-break spaces and full-width signs
        while found:
            place = at + first_bit(found)
            controls += data[place] == _C2 and data[place + 1] < 0xA0
            replacements += data[place] == _EF and data[place + 1] == 0xBF and data[place + 2] == 0xBD
            found &= found - ONE
        at += 64
    return letters, controls, replacements


@kernel
def _char_before(data: Bytes, end: Int) -> Int:
    """Return the byte at which the character begins that ends before byte `end`."""
    at = end - 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@kernel
def _is_more(data: Bytes, begin: Int, end: Int) -> bool:
    """Tell whether the bytes from `begin` to `end` end with an ellipsis, in brackets too, or with [more]."""
    inner = end
    if end - begin > 4 and data[end - 1] == ord("]"):
        inner -= 1
        at = inner - 4
        if at > begin and data[at - 1] == ord("["):
            word = np.int64(load8(data, at, 4)) | 0x20202020
            if word == _MORE:
                return True
    if inner - begin < 3:
        return False
    last = np.int64(load8(data, inner - 3, 3))
    if last != _POINTS and last != _ELLIPSIS:
        return False
    return bool(inner == end or (inner - begin > 3 and data[inner - 4] == ord("[")))


@kernel
def _cut_off(data: Bytes, begin: Int, end: Int, numbers: Bytes, blocks: Bytes) -> float:
    """Tell how the text from byte `begin` to `end` ends; see the module."""
    while end > begin:
        at = _char_before(data, end)
        if not is_blank(data, at, end, numbers, blocks):
            break
        end = at
    if end == begin:
        return 0.0
    if _is_more(data, begin, end):
        return 1.0
    while end > begin:
        at = _char_before(data, end)
        code = decode(data, at)[0]
        if code in _ENDS:
            return 0.0
        if code not in _CLOSERS:
            break
        end = at
    return 0.5


# ------------------------------------------------------------------------------------------------ lines


@kernel
def _is_code(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether the line from byte `at` to `end` (not blank) is code of a script, a style or JSON."""
    braces, semicolons, marks, equals, quotes, pairs, others = 0, 0, 0, 0, 0, 0, 0
    last = end - 1
    while data[last] == _BLANK or data[last] == _TAB or data[last] == _RETURN:
        last -= 1
        if last < at:
            return False
    ends = data[last] == _SEMICOLON
    start = at
    while at < end:
        inside = low_bits(end - at)
        found = range_bits(data, at, _OPEN_BRACE, _OPEN_BRACE) | range_bits(
            data, at, _CLOSE_BRACE, _CLOSE_BRACE
        )
        braces += count_bits(found & inside)
        found = range_bits(data, at, _QUOTE, _QUOTE) & inside
        quotes += count_bits(found)
        colon = range_bits(data, at, _COLON, _COLON) & inside
        marks += count_bits(colon)
        pairs += count_bits(found & (colon >> np.uint64(1)))
        marks += count_bits(range_bits(data, at, _OPEN, _CLOSE) & inside)
        equals += count_bits(range_bits(data, at, _EQUALS, _EQUALS) & inside)
        semicolons += count_bits(range_bits(data, at, _SEMICOLON, _SEMICOLON) & inside)
        # a pair over the end of the window
        if at + 64 < end:
            pairs += data[at + 63] == _QUOTE and data[at + 64] == _COLON
        at += 64
    if braces and semicolons + marks + equals:
        return True
    if (ends and (equals or (last > start and data[last - 1] == _CLOSE))) or (pairs and quotes > 1):
        return True
    if braces or semicolons:
        for place in range(start, last + 1):
            byte = data[place]
            others += np.int64(byte) not in _CODE_SIGNS
        return others == 0
    return False


@kernel
def _is_escape(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether a backslash at byte `at` begins an escape of roff: a font, a string, a bullet, dash, quote or copyright sign."""
    if at + 2 >= end:
        return False
    first, second = np.int64(data[at + 1]), np.int64(data[at + 2])
    if first == ord("f"):
        return second in _FONTS
    if first == ord("*"):
        return bool(second == ord("(") or second == ord("["))
    if first != ord("(") or at + 3 >= end:
        return False
    third = np.int64(data[at + 3])
    if third == ord("q"):
        return second in _QUOTES
    return (second << 8 | third) in _SIGNS


@kernel
def _is_roff(data: Bytes, begin: Int, end: Int) -> bool:
    """Tell whether the line from byte `begin` to `end` has a request or an escape of roff."""
    at, size = begin, end - begin
    if size >= 2 and data[at] == ord(".") and is_letter(data[at + 1]):
        after = at + 3 if size >= 3 and is_letter(data[at + 2]) else at + 2
        if after == end or data[after] == _BLANK or data[after] == _TAB or data[after] == _RETURN:
            return True
    begins = size >= 3 and (data[at] == ord(".") or data[at] == ord("'"))
    if begins and data[at + 1] == _BACKSLASH and data[at + 2] == _QUOTE:
        return True
    while at < end:
        found = range_bits(data, at, _BACKSLASH, _BACKSLASH) & low_bits(end - at)
        while found:
            if _is_escape(data, at + first_bit(found), end):
                return True
            found &= found - ONE
        at += 64
    return False


@kernel
def _measure_lines(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Positions, sizes: Positions, hashes: Words,
    numbers: Bytes, blocks: Bytes, kept: Positions, table: Words, repeated: Bools, out: Floats,
) -> None:  # fmt: skip
    """Set the columns about lines of all texts."""
    for row in range(offsets.size - 1):
        lines, script, roff = 0, np.int64(0), 0
        for line in range(bounds[row], bounds[row + 1]):
            at = offsets[row] + starts[line]
            end = at + sizes[line]
            if is_blank(data, at, end, numbers, blocks):
                continue
            kept[lines] = line
            lines += 1
            roff += _is_roff(data, at, end)
            if _is_code(data, at, end):
                script += code_points(data, at, end)
        same, _ = count_duplicates(
            data, offsets[row], starts, sizes, hashes, kept, lines, table, row + 1, repeated
        )
        out[_SCRIPT, row] = script
        out[_ROFF, row], out[_REPEATED, row] = roff / max(lines, 1), same / max(lines, 1)


# ------------------------------------------------------------------------------------------------ words


@kernel
def _count_encoded(data: Bytes, at: Int, end: Int) -> Int:
    """Count the characters from byte `at` to `end` in long runs of digits of base64 or hexadecimal numbers."""
    count: Int = 0
    size: Int = 0
    digits: Int = 0
    while at <= end:
        byte: Int = np.int64(data[at]) if at < end else 0
        is_digit = 0x30 <= byte <= 0x39
        if is_digit or is_letter(byte) or byte == ord("+") or byte == ord("/") or byte == ord("="):
            size, digits = size + 1, digits + is_digit
        else:
            if size >= _RUN and digits:
                count += size
            size, digits = 0, 0
        at += 1
    return count


@kernel
def _count_letters(
    data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes, scripts: Bytes, counts: Counts
) -> bool:
    """Count the letters of a word that are not ASCII by script; tell whether letters of two scripts that look alike meet."""
    is_mixed, before = False, NO_SCRIPT
    while at < end:
        code, width = decode(data, at)
        script: Int = NO_SCRIPT
        if code < 0x80:
            script = LATIN if is_letter(code) else NO_SCRIPT
        elif char_class(numbers, blocks, code) & LETTER:
            script = script_of(code, scripts)
            counts[script] += 1
        if LATIN <= script <= CYRILLIC and LATIN <= before <= CYRILLIC and script != before:
            is_mixed = True
        before = int(script)
        at += width
    return is_mixed


@kernel
def _measure_words(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Positions, sizes: Positions, chars: Positions, kinds: Bytes,
    numbers: Bytes, blocks: Bytes, scripts: Bytes, ascii_letters: Counts, counts: Counts, out: Floats,
) -> None:  # fmt: skip
    """Set the columns about words of all texts; `counts` is scratch, (SCRIPTS,)."""
    for row in range(offsets.size - 1):
        words, mixed, encoded, longest = np.int64(0), 0, np.int64(0), np.int64(0)
        for script in range(SCRIPTS):
            counts[script] = 0
        for word in range(bounds[row], bounds[row + 1]):
            at = offsets[row] + starts[word]
            words += np.int64(kinds[word]) & HAS_LETTER
            longest = max(longest, np.int64(chars[word]))
            if sizes[word] >= _RUN:
                encoded += _count_encoded(data, at, at + sizes[word])
            if sizes[word] != chars[word]:
                mixed += _count_letters(data, at, at + sizes[word], numbers, blocks, scripts, counts)
        counts[LATIN] += ascii_letters[row]
        letters, most = np.int64(0), np.int64(0)
        for script in range(NO_SCRIPT + 1, SCRIPTS):
            letters += counts[script]
            if counts[script] > most:
                most = counts[script]
        if letters:
            out[_FOREIGN, row] = (letters - most) / letters
        if words:
            out[_MIXED, row] = mixed / words
        out[_ENCODED, row], out[_LONGEST, row] = encoded, longest


@kernel
def _measure_bytes(
    data: Bytes, offsets: Counts, tags: Words, leads: Bytes, continues: Bytes, numbers: Bytes, blocks: Bytes,
    ascii_letters: Counts, counts: Counts, out: Floats,
) -> None:  # fmt: skip
    """Set the columns about characters of all texts; `counts` is scratch."""
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        ascii_letters[row], out[_CONTROLS, row], out[_REPLACEMENTS, row] = _count_bytes(data, begin, end)
        count_markup(data, begin, end, tags, counts)
        out[_HTML, row], out[_WIKI, row], out[_LATEX, row] = counts[HTML], counts[WIKI], counts[LATEX]
        out[_MOJIBAKE, row] = count_mojibake(data, begin, end, leads, continues)
        out[_CUT_OFF, row] = _cut_off(data, begin, end, numbers, blocks)


_BY_CHARACTERS = [_MOJIBAKE, _REPLACEMENTS, _CONTROLS, _HTML, _SCRIPT, _WIKI, _LATEX, _ENCODED]


def _health(view: TextView) -> Iterator[Floats]:
    out = np.zeros((len(MEANINGS), len(view)))
    words, lines, classes = view.words, view.lines, load_tables()
    most = int(np.diff(lines.bounds).max(initial=0))
    ascii_letters, counts = np.empty(len(view), np.int64), np.empty(SCRIPTS, np.int64)
    _measure_bytes(
        view.data, view.offsets, load_tags(), load_leads(), load_bytes(), *classes, ascii_letters, counts, out
    )
    _measure_lines(
        view.data, view.offsets, lines.bounds, lines.starts, lines.sizes, lines.hashes, *classes,
        np.empty(most, np.int32), np.zeros(2 * table_slots(most), np.uint64), np.empty(most, np.bool_), out,
    )  # fmt: skip
    _measure_words(
        view.data, view.offsets, words.bounds, words.starts, words.sizes, words.chars, words.kinds, *classes,
        load_scripts(), ascii_letters, counts, out,
    )  # fmt: skip
    out[_BY_CHARACTERS] /= np.maximum(view.lengths, 1)
    yield from out


TAGGERS = (
    ViewTagger.of(
        "health_v1",
        "Shares of what is no text: broken encodings, markup, code, encoded data, repeated lines.",
        Part(_health, dict.fromkeys(MEANINGS, "document")),
        meanings=MEANINGS,
        limits=LIMITS,
        decimals=8,
    ),
    ViewTagger.of(
        "health_language_v1",
        "Language of the text, and how far that is in doubt.",
        Part(score_language, {"language": "scalar", "doubt": "document"}),
        meanings={
            "language": "the surest one, by CLD2; left out where none can be told",
            "doubt": "1 less the confidence, the share of the text that is in that language; 1 where none can be told",
        },
        limits={"doubt": DOUBT},
        extra="pycld2",
        is_optional=True,
        tally=Languages,
    ),
)
