"""Taggers of code: copyright notices, shapes of lines, comments and text of pages. Source: ``code_taggers.py`` of the Dolma toolkit, release 1.2.1.

The extension of the file is ``metadata.ext``, the stars of its repository ``metadata.max_stars_count``.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.taggers.base import NUMBER, Part, ViewTagger, span_column
from dolma_dask.taggers.notices import find_notices
from dolma_dask.taggers.whitespace_tokenizer import count_runs
from dolma_dask.text import compute as pc
from dolma_dask.text.comments import HTML, JAVA_FAMILY, PYTHON, count_comments, page_share, styles
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, kernel
from dolma_dask.text.tables import LETTER, STR_WORD, char_class, decode, load_str_classes, load_tables
from dolma_dask.text.view import TextView

_EXTENSION, _STARS = "metadata.ext", "metadata.max_stars_count"


def _copyright(view: TextView) -> Iterator[pa.Array | Floats]:
    """Yield the span of a notice, that of a block and the share: of the first ``/* */`` if there is one, and otherwise of the lines that the text begins with."""
    starts, ends, sizes = np.empty((3, len(view)), np.int64)
    find_notices(view.data, view.offsets, starts, ends, sizes)
    has_notice, has_block = ends > 0, (sizes > 0) & (view.lengths > 0)
    yield _one_span(has_notice, starts, ends)
    yield _one_span(has_block, np.zeros_like(sizes), np.minimum(sizes, view.lengths))
    counted = np.where(has_notice, ends - starts + 1, np.where(has_block, sizes + 1, 0))
    yield np.where(view.lengths == 0, -1.0, counted / np.maximum(view.lengths, 1))


def _one_span(found: Bools, starts: Counts, ends: Counts) -> pa.Array:
    """Return the span of each text that has one."""
    return span_column(np.append(0, np.cumsum(found)), starts[found], ends[found])


@kernel
def _ends_line(code: Int) -> bool:
    """Tell whether `str.splitlines` ends a line at this character."""
    return bool(
        0x0A <= code <= 0x0D or 0x1C <= code <= 0x1E or code == 0x85 or code == 0x2028 or code == 0x2029
    )


@kernel
def _measure(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, words: Bytes, word_blocks: Bytes, out: Floats
) -> None:
    """Set the longest line, the characters in lines, the lines, letters and digits, letters, and pieces between tokens of every text."""
    for row in range(offsets.size - 1):
        longest = inside = lines = alnums = letters = line = 0
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            code, width = decode(data, at)
            letters += (char_class(numbers, blocks, code) & LETTER) != 0
            alnums += (char_class(words, word_blocks, code) & STR_WORD) != 0 and code != 0x5F
            at += width
            if _ends_line(code):
                longest, inside, lines, line = max(longest, line), inside + line, lines + 1, 0
                if code == 0x0D and at < end and data[at] == 0x0A:
                    at += 1
            else:
                line += 1
                if at == end:
                    longest, inside, lines = max(longest, line), inside + line, lines + 1
        out[0, row], out[1, row], out[2, row], out[3, row], out[4, row] = (
            longest,
            inside,
            lines,
            alnums,
            letters,
        )
        out[5, row] = count_runs(data, offsets[row], end, numbers, blocks) + 1


def _shapes(view: TextView) -> Iterator[Floats]:
    found = np.zeros((6, len(view)))
    _measure(view.data, view.offsets, *load_tables(), *load_str_classes(), found)
    longest, inside, lines, alnums, letters, pieces = found
    yield longest
    yield inside / np.maximum(lines, 1)
    yield alnums / np.maximum(view.lengths, 1)
    yield letters / pieces


def _starcoder(
    counted: frozenset[str], otherwise: float, view: TextView, metadata: pa.LargeStringArray
) -> Iterator[pa.Array | np.ndarray]:
    """Yield what StarCoder looks at; comments of the extensions `counted`, and `otherwise` where they are not."""
    fields, _ = scan_metadata(metadata, {_EXTENSION: "string", _STARS: "number"})
    yield pc.match_substring(pc.utf8_slice_codeunits(view.texts, 0, 100), "<?xml version=").cast(NUMBER)
    yield pc.fill_null(fields[_STARS], 0.0)
    comments, pages = np.full(len(view), otherwise), np.full(len(view), -1.0 if otherwise < 0 else 1.0)
    extensions = fields[_EXTENSION]
    known = pc.is_in(extensions, value_set=pa.array(sorted(counted | HTML), pa.large_string()))
    for row in np.flatnonzero(known).tolist():
        text, extension = view.texts[row].as_py(), extensions[row].as_py()
        if extension in counted:
            comments[row] = count_comments(text, extension) / len(text) if text else -1.0
        if extension in HTML:
            pages[row] = page_share(text) if text else -1.0
        elif text:
            pages[row] = 1.0
    yield comments
    yield pages


_V2 = PYTHON | JAVA_FAMILY
_ALL = frozenset(styles()) | PYTHON
_STARCODER_DIFFERS = "Comments are found by their signs, also in code that cannot be parsed, and those of scripts in pages do not count; extensions are some hundred common ones."


def _code_tagger(
    name: str, what: str, comments: str, counted: frozenset[str], otherwise: float, version: int = 1
) -> ViewTagger:
    types = {
        "has_xml_template_doc": "1 if an XML declaration stands in the first 100 characters, else 0",
        "num_github_stars_doc": "metadata.max_stars_count, 0 if there is none",
        comments: "characters of comments and docstrings, by those of the text",
        "code_to_text_ratio_html_doc": "characters of a page that are seen, by all, 0 for up to 100; 1 for other code",
    }
    part = Part(partial(_starcoder, counted, otherwise), dict.fromkeys(types, "document"))
    return ViewTagger.of(
        name,
        what,
        part,
        meanings=types,
        reads=("text", "metadata"),
        differs=_STARCODER_DIFFERS,
        version=version,
    )


TAGGERS = (
    ViewTagger.of(
        "code_copyright_comments_v1",
        "Copyright notice or block of comments that code begins with, and its share of the text.",
        Part(
            _copyright,
            {"copyright_notice": "spans", "comment_block": "spans", "doc": "document"},
        ),
        meanings={
            "copyright_notice": "the first comment between /* and */, if it has the word copyright",
            "comment_block": "lines that begin with //, # or --, and empty ones, at the beginning of a text without such a comment; without their newlines",
            "doc": "characters of the notice or the block and one more, by all; -1 for an empty text",
        },
        differs="The span of a block of empty lines ends with the text and not behind it.",
    ),
    ViewTagger.of(
        "code_redpajama_taggers_v1",
        "Lengths of the lines of code, and its letters and digits.",
        Part(
            _shapes,
            dict.fromkeys(
                ("max_line_length_doc", "avg_line_length_doc", "alnum_prop_doc", "alpha_token_prop_doc"),
                "document",
            ),
        ),
        meanings={
            "max_line_length_doc": "characters of the longest line",
            "avg_line_length_doc": "mean characters of the lines",
            "alnum_prop_doc": "letters and digits, by all characters",
            "alpha_token_prop_doc": "letters, by the pieces between words and punctuation",
        },
    ),
    _code_tagger(
        "code_starcoder_taggers_v1",
        "Comments of code and text of pages, as StarCoder filtered code by them; -1 for an unknown extension or an empty text.",
        "nl_ratio_doc",
        _ALL,
        -1.0,
    ),
    _code_tagger(
        "code_starcoder_taggers_v2",
        "Comments of Python, Java and JavaScript, and text of pages, as StarCoder filtered code by them; 0.5 for other extensions.",
        "code_to_comment_ratio_doc",
        _V2,
        0.5,
        version=2,
    ),
)
