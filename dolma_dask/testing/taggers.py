"""The tests that every tagger should pass, for authors of plug-ins and for the taggers shipped here.

Subclass `TaggerTests` in a test module, give it a fixture ``tagger``, and pytest runs the rest::

    class TestMySignal(TaggerTests):
        @pytest.fixture
        def tagger(self):
            return my_signal_v1

A tagger that reads other columns than text overrides the fixture ``batch`` too. The texts are wild on purpose: every
plane of Unicode, marks without a base, all line ends, NUL, texts of nothing and of nothing but white space. Each test
takes milliseconds, besides the tagger's own time on about 25 KB of text.
"""

import json
import pickle
import random
from functools import cache
from typing import Any, get_args

import cloudpickle
import pyarrow as pa
import pytest

from dolma_dask.taggers.base import Kind, Tagger, ViewTagger
from dolma_dask.taggers.functions import check_columns, fits_kind
from dolma_dask.taggers.registry import check_tagger, find_built_in
from dolma_dask.text.units import cut
from dolma_dask.text.view import TextView

WILD_TEXTS = (
    "",
    " ",
    "\n",
    "\n\n\n",
    " \t\r\n\v\f\x1c\x1d\x1e\x1f\x85\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000",
    "x",
    "A plain sentence, with 2 numbers (1,234.5) and a #tag.\n",
    "CRLF line\r\nanother\r\n\r\nand a lone CR\rend",
    "line\u2028separator\u2029paragraph\x85next\vvertical\fform",
    "nul\x00inside \x00\x00 \x7f\x1b",
    "e\u0301 e\u0301\u0301 \u0301alone A\u030a\u0323 \u0e01\u0e33 \u0915\u094d\u200d\u0937 \ua9c0",
    "zero\u200bwidth\u200cjoiners\u200d\ufeffbom\u2060\u00ad",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1eb\U0001f1f7 \u2764\ufe0f\u200d\U0001f525",
    "\u0661\u0662\u0663 \u0967\u0968 \u00bd \u2167 \u3007 \U0001d7d8\U0001d7d9",
    "\u05e9\u05dc\u05d5\u05dd \u202b\u0645\u0631\u062d\u0628\u0627\u202c mixed",
    "\u4e2d\u6587\u53e5\u5b50\u3002\u3053\u308c\u306f\u65e5\u672c\u8a9e \U00020000\U0002a6d6 \uac00\u1112\u1161\u11ab",
    "\u0130stanbul \u0131 STRASSE stra\u00dfe \ufb01sh \u01c5 \u1e9e",
    "\ue000 \ufdd0 \ufffe \uffff \U000f0000 \U0010ffff \u0378 \ufffd",
    "- one\n* two\n\u2022 three\n- one\n\u2026\nmore\u2026\nthree...\n",
    "the cat the cat the cat the cat the cat the cat the cat the cat",
    "w" * 1000,
    "\u2026" * 100 + " " + "\u00e9" * 63 + " " + "\u3042" * 64,
    " ".join("word" + "s" * (k % 70) for k in range(200)),
    "mail a.b@example.org, http://example.org/?q=1#x {json: [1, 2]} <b>bold</b> $x^2$ 0xff",
)
"""Texts that break careless code."""


def wild_texts(count: int = 60, seed: int = 0) -> list[str]:
    """Return `WILD_TEXTS` and as many random texts of all planes as it takes to make `count`; the same every time."""
    return list(_wild_texts(count, seed))


@cache
def _wild_texts(count: int, seed: int) -> tuple[str, ...]:
    draw = random.Random(seed)
    texts = list(WILD_TEXTS)
    while len(texts) < count:
        alphabet = [chr(code) for code in _random_codes(draw, 12)] + list(" \n") * draw.randrange(4)
        texts.append("".join(draw.choices(alphabet, k=draw.randrange(400))))
    return tuple(texts[:count])


def _random_codes(draw: random.Random, count: int) -> list[int]:
    ends = [0x80, 0x300, 0x800, 0x3000, 0xD800, 0x20000, 0x110000]
    codes = [draw.randrange(draw.choice(ends)) for _ in range(count)]
    return [0xFFFD if 0xD800 <= code < 0xE000 else code for code in codes]


def can_be_called(name: str) -> bool:
    """Tell whether a tagger shipped has what it needs, or needs a tokenizer alone; one that lacks a package or a file of the user's is not tested with the others."""
    found = find_built_in(name)
    return not isinstance(found, ViewTagger) or found.tokenize is not None or found.lacks() is None


def make_batch(columns: tuple[str, ...], texts: list[str]) -> pa.RecordBatch:
    """Make a batch of large_string columns: ``text`` from `texts`, every other one ``<column>-<row>``."""
    arrays = [
        pa.array(
            texts if name == "text" else [f"{name}-{row}" for row in range(len(texts))], pa.large_string()
        )
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows


class TaggerTests:
    """The laws of every tagger; subclasses provide the fixture ``tagger`` and, where they must, ``batch``."""

    @pytest.fixture
    def tagger(self) -> Tagger:
        """Return the tagger under test."""
        raise NotImplementedError("override the fixture `tagger`")

    @pytest.fixture
    def batch(self, tagger: Tagger) -> pa.RecordBatch:
        """Return the documents to tag, with the columns that the tagger reads."""
        return make_batch(tagger.reads, wild_texts())

    def test_attributes(self, tagger: Tagger) -> None:
        """Name, types, kinds, reads, version and params are well formed, so that keys and the journal can be made."""
        check_tagger(tagger)
        assert isinstance(tagger.reads, tuple), "reads must be a tuple"
        assert len(set(tagger.reads)) == len(tagger.reads), "reads must not name a column twice"
        assert set(tagger.types.values()) <= set(get_args(Kind))
        assert isinstance(tagger.version, (int, str)), "version must be an int or str"
        assert not isinstance(tagger.version, bool), "version must be an int or str"
        canonical = json.dumps(json.loads(tagger.params), sort_keys=True, separators=(",", ":"))
        assert tagger.params == canonical, f"params must be canonical JSON: {canonical}"

    def test_columns(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """The columns are those of `types`, in their order and fit for their kinds; one row per document."""
        tagged = tagger(batch)
        check_columns(tagger.name, tagger.types, tagged, batch.num_rows)
        assert tagged.schema.names == list(tagger.types), "columns must come in the order of types"
        for field in tagged.schema:
            assert fits_kind(tagger.types[field.name], field.type)

    def test_values(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """Every number is finite: JSON has no other."""
        for row, attributes in enumerate(_rows(tagger(batch))):
            for name, value in attributes.items():
                try:
                    json.dumps(value, allow_nan=False)
                except ValueError:
                    pytest.fail(
                        f"row {row}: {name} is {value}, which JSON cannot hold; expected a finite number or null"
                    )

    def test_no_documents(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """An empty batch gives an empty batch of the same columns and types."""
        assert tagger(batch.slice(0, 0)).schema.equals(tagger(batch).schema)
        assert tagger(make_batch(tuple(batch.schema.names), [])).num_rows == 0

    def test_empty_text(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """A document of no text is tagged, not refused."""
        if "text" in tagger.reads:
            place = batch.schema.names.index("text")
            one = batch.slice(0, 1).set_column(place, "text", pa.array([""], pa.large_string()))
            assert tagger(one).num_rows == 1

    def test_order(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """Rows come in the order of the documents."""
        backwards = batch.take(pa.array(range(batch.num_rows - 1, -1, -1), pa.int64()))
        assert _rows(tagger(backwards)) == _rows(tagger(batch))[::-1], (
            "rows must follow the order of the documents"
        )

    def test_split(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """A document's attributes do not depend on its batch: the same whole, in slices, and one by one."""
        whole = _rows(tagger(batch))
        for size in (1, 7):
            parts = (tagger(batch.slice(start, size)) for start in range(0, batch.num_rows, size))
            rows = [row for part in parts for row in _rows(part)]
            assert rows == whole, f"in slices of {size} the result must be the same"

    def test_repeat(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """The same batch gives the same result again, and is not changed."""
        before = _rows(batch)
        assert _rows(tagger(batch)) == _rows(tagger(batch)), "a second call must give the same"
        assert _rows(batch) == before, "the batch must not be changed"

    def test_view(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """A tagger that takes the shared view of the texts answers as for the batch, also in the memory of an earlier view."""
        if isinstance(tagger, ViewTagger) and "text" in tagger.reads:
            texts = batch.column("text")
            earlier = TextView(texts)
            assert _rows(tagger.of_view(earlier, batch)) == _rows(tagger(batch))
            rest = TextView(texts.slice(1), earlier)
            assert _rows(tagger.of_view(rest, batch.slice(1))) == _rows(tagger(batch.slice(1)))

    def test_pickling(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """A tagger survives the way to a worker: same identity, same result."""
        sent = pickle.loads(cloudpickle.dumps(tagger))
        assert (sent.name, sent.version, sent.params) == (tagger.name, tagger.version, tagger.params)
        assert (dict(sent.types), tuple(sent.reads)) == (dict(tagger.types), tagger.reads)
        assert _rows(sent(batch)) == _rows(tagger(batch))

    def test_reads(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """The columns of `reads` are all that matter: others may be there, or not, in any order."""
        only = batch.select(list(tagger.reads))
        result = _rows(tagger(only))
        names = [name for name in ("id", "source", "text", "note") if name not in tagger.reads]
        for filler in ("a", "b"):
            others = {name: pa.array([filler] * only.num_rows, pa.large_string()) for name in names}
            columns = {**others, **{name: only.column(name) for name in reversed(tagger.reads)}}
            more = pa.RecordBatch.from_pydict(columns)
            assert _rows(tagger(more)) == result, "columns that are not in reads must not matter"

    def test_spans(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """Spans lie inside the text, in code points, and are sorted by their start."""
        lengths = (
            [len(text) for text in batch.column("text").to_pylist()] if "text" in batch.schema.names else None
        )
        for row, attributes in enumerate(_rows(tagger(batch))):
            for name, kind in tagger.types.items():
                has_spans = kind == "spans" or (
                    kind == "labels" and isinstance((attributes[name] or [0])[0], dict)
                )
                if has_spans and attributes[name] is not None:
                    _check_spans(
                        f"row {row}, {name}", attributes[name], None if lengths is None else lengths[row]
                    )

    def test_units(self, tagger: Tagger, batch: pa.RecordBatch) -> None:
        """Numbers of paragraphs and the like are scores of spans that begin and end where these do."""
        if not isinstance(tagger, ViewTagger) or "text" not in batch.schema.names:
            return
        tagged, view = tagger(batch), TextView(batch.column("text"))
        for part in tagger.parts:
            pieces = cut(view, part.unit)
            places = list(zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True))
            for name, kind in part.types.items() if part.unit != "document" else ():
                for row, spans in enumerate(tagged.column(name).to_pylist()):
                    own = places[pieces.bounds[row] : pieces.bounds[row + 1]]
                    outside = {(span["start"], span["end"]) for span in spans or ()} - {*own}
                    assert kind != "document" or not outside, (
                        f"row {row}, {name}: no {part.unit} at {outside}"
                    )


def _check_spans(where: str, spans: list[dict[str, float]], length: int | None) -> None:
    previous = 0.0
    for span in spans:
        assert 0 <= span["start"] <= span["end"], f"{where}: {span}: expected 0 <= start <= end"
        assert length is None or span["end"] <= length, (
            f"{where}: {span} ends after the text of {length} characters"
        )
        assert span["start"] >= previous, f"{where}: {span}: spans must be sorted by their start"
        previous = span["start"]
