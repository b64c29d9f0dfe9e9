"""Pieces of texts are those of plain Python, and what is found in them stands where it is in the document."""

import re

import pyarrow as pa
import pytest
import tagger_oracles as oracles
from hypothesis import example, given
from hypothesis import strategies as st

from dolma_dask.taggers.base import LABELLED_SPANS, NUMBERS_BY_NAME, SPANS, Part, each_text, summed
from dolma_dask.testing.taggers import WILD_TEXTS
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView


def paragraphs(text):
    return [match.span() for match in re.finditer(r"[^\n]*\n|[^\n]+$", text)]


def lines(text):
    places, start = [], 0
    for line in text.split("\n"):
        places.append((start, start + len(line)))
        start += len(line) + 1
    return places


def words(text):
    places, end = [], 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        places.append((start, end))
    return places


UNITS = {
    "document": lambda text: [(0, len(text))],
    "any_paragraph": paragraphs,
    "paragraph": lambda text: [(start, end) for start, end in paragraphs(text) if text[start:end].strip()],
    "line": lines,
    "word": words,
}


@pytest.mark.parametrize("unit", UNITS)
@given(batch=st.lists(oracles.texts, max_size=4), skip=st.integers(0, 2))
@example(batch=list(WILD_TEXTS), skip=1)
def test_pieces_are_those_of_plain_python(unit, batch, skip):
    earlier = TextView(pa.array(["an earlier\n\nblock"], pa.large_string()))
    cut(earlier, unit)
    pieces = cut(TextView(pa.array(batch, pa.large_string()).slice(skip), earlier), unit)
    texts = pieces.view.texts.to_pylist()
    for row, text in enumerate(batch[skip:]):
        inside = slice(pieces.bounds[row], pieces.bounds[row + 1])
        places = list(zip(pieces.starts[inside].tolist(), pieces.ends[inside].tolist(), strict=True))
        assert places == UNITS[unit](text)
        assert texts[inside] == [text[start:end] for start, end in places]


def letters(text):
    found = [(place, place + 1, ord(char)) for place, char in enumerate(text) if char in "ab\n"]
    return [
        float(len(text)) if len(text) % 2 else None,
        found or None,
        [(str(score), start, end, score) for start, end, score in found],
        [(str(len(text)), 1.0)],
    ]


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "document"])
@given(batch=st.lists(st.text("ab\n \u00e9\U0001f600", max_size=12), max_size=4), skip=st.integers(0, 1))
def test_what_is_found_in_pieces_stands_where_it_is_in_the_document(unit, batch, skip):
    kinds = {"number": "document", "spans": "spans", "labelled": "labels", "named": "labels"}
    scorer = each_text(letters, [pa.float64(), SPANS, LABELLED_SPANS, NUMBERS_BY_NAME])
    view = TextView(pa.array(batch, pa.large_string()).slice(skip))
    number, spans, labelled, named = (column.to_pylist() for column in Part(scorer, kinds, unit).score(view))
    for row, text in enumerate(batch[skip:]):
        places = UNITS[unit](text)
        shifted = [
            {"start": start + a, "end": start + b, "score": float(score)}
            for start, end in places
            for a, b, score in letters(text[start:end])[1] or ()
        ]
        assert (number[row] or []) == [
            {"start": start, "end": end, "score": float(end - start)}
            for start, end in places
            if (end - start) % 2
        ]
        assert (spans[row] or []) == shifted
        assert (labelled[row] or []) == [{"label": str(int(span["score"])), **span} for span in shifted]
        assert (named[row] or []) == [
            {"label": str(end - start), "start": start, "end": end, "score": 1.0} for start, end in places
        ]


@given(batch=st.lists(oracles.texts, max_size=4))
def test_sums_are_those_of_the_pieces(batch):
    view = TextView(pa.array(batch, pa.large_string()))
    (found,) = summed(lambda pieces: [pieces.lengths.astype(float)], "word")(view)
    assert found.tolist() == [sum(map(len, text.split())) for text in batch]
