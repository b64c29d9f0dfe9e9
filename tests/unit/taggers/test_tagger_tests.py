"""`TaggerTests` lets a good tagger pass, and each kind of broken one fail in the test that guards it."""

import inspect
import itertools
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import DataError, UsageError
from dolma_dask.taggers.base import LABELLED_SPANS, SPANS, Part, ViewTagger
from dolma_dask.testing.taggers import WILD_TEXTS, TaggerTests, make_batch, wild_texts

CALLS = itertools.count()


def run(test, tagger):
    batch = make_batch(("text",), wild_texts())
    function = getattr(TaggerTests(), test)
    function(*[tagger, batch][: len(inspect.signature(function).parameters)])


def good(batch):
    lengths = [len(text) for text in batch.column("text").to_pylist()]
    spans = [[(0, length, 1.0)] if length else [] for length in lengths]
    return pa.RecordBatch.from_pydict({"n": pa.array(lengths, pa.float64()), "s": pa.array(spans, SPANS)})


@dataclass
class Handmade:
    work: object = good
    name: str = "handmade_v1"
    version: object = 1
    params: str = '{"a":1,"b":[2]}'
    types: dict = field(default_factory=lambda: {"n": "document", "s": "spans"})
    reads: tuple = ("text",)

    def __call__(self, batch):
        return self.work(batch)


class TestHandmade(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return Handmade()


def counts(values):
    return lambda batch: good(batch).set_column(0, "n", pa.array(values(batch), pa.float64()))


def spans(of):
    return lambda batch: good(batch).set_column(
        1, "s", pa.array([of(len(text)) for text in batch.column("text").to_pylist()], SPANS)
    )


def remembers(batch):
    return good(batch).set_column(0, "n", pa.array([float(next(CALLS)) for _ in range(batch.num_rows)]))


def no_empty_text(batch):
    if "" in batch.column("text").to_pylist():
        raise ZeroDivisionError
    return good(batch)


def no_empty_batch(batch):
    return pa.RecordBatch.from_pylist([{"n": 1.0, "s": []} for _ in range(batch.num_rows)])


def looks_at_id(batch):
    ids = batch.column("id").to_pylist() if "id" in batch.schema.names else [""] * batch.num_rows
    return counts(lambda batch: [float(len(value)) for value in ids])(batch)


def by_batch_size(batch):
    return counts(lambda batch: [float(batch.num_rows)] * batch.num_rows)(batch)


def sorted_texts(batch):
    return counts(lambda batch: sorted(float(len(text)) for text in batch.column("text").to_pylist()))(batch)


def remembers_view(view):
    return [np.full(len(view), float(next(CALLS)))]


def whole_texts(view):
    return [pa.array([[(0, length, 1.0)] for length in view.lengths.tolist()], SPANS)]


def labelled(batch):
    found = [[("a", 0, len(text) + 1, 1.0)] for text in batch.column("text").to_pylist()]
    return pa.RecordBatch.from_pydict({"l": pa.array(found, LABELLED_SPANS)})


BROKEN = {
    "name": ("test_attributes", Handmade(name="2_bad")),
    "name with a space": ("test_attributes", Handmade(name="a b")),
    "type name": ("test_attributes", Handmade(types={"n n": "document"})),
    "kind": ("test_attributes", Handmade(types={"n": "number"})),
    "no types": ("test_attributes", Handmade(types={})),
    "reads is a list": ("test_attributes", Handmade(reads=["text"])),
    "reads twice": ("test_attributes", Handmade(reads=("text", "text"))),
    "version": ("test_attributes", Handmade(version=1.5)),
    "params order": ("test_attributes", Handmade(params='{"b":1,"a":2}')),
    "params blanks": ("test_attributes", Handmade(params='{"a": 1}')),
    "params": ("test_attributes", Handmade(params="")),
    "column order": ("test_columns", Handmade(lambda batch: good(batch).select(["s", "n"]))),
    "missing column": ("test_columns", Handmade(lambda batch: good(batch).select(["n"]))),
    "column type": ("test_columns", Handmade(types={"n": "document", "s": "dict"})),
    "fewer rows": ("test_columns", Handmade(lambda batch: good(batch).slice(1))),
    "not a batch": ("test_columns", Handmade(lambda batch: good(batch).to_pydict())),
    "nan": ("test_values", Handmade(counts(lambda batch: [float("nan")] * batch.num_rows))),
    "infinite score": ("test_values", Handmade(spans(lambda length: [(0, length, float("inf"))]))),
    "no empty batch": ("test_no_documents", Handmade(no_empty_batch)),
    "no empty text": ("test_empty_text", Handmade(no_empty_text)),
    "sorted": ("test_order", Handmade(sorted_texts)),
    "batch size": ("test_split", Handmade(by_batch_size)),
    "state": ("test_repeat", Handmade(remembers)),
    "view": ("test_view", ViewTagger("calls_v1", {"n": "document"}, remembers_view)),
    "pickling": ("test_pickling", Handmade(version=object())),
    "other columns": ("test_reads", Handmade(looks_at_id)),
    "other units": (
        "test_units",
        ViewTagger(
            "units_v1",
            {"s": "spans"},
            whole_texts,
            parts=(Part(whole_texts, {"s": "document"}, "paragraph"),),
        ),
    ),
    "labelled span too long": ("test_spans", Handmade(labelled, types={"l": "labels"})),
    "span too long": ("test_spans", Handmade(spans(lambda length: [(0, length + 1, 1.0)]))),
    "span backwards": ("test_spans", Handmade(spans(lambda length: [(1, 0, 1.0)]))),
    "span negative": ("test_spans", Handmade(spans(lambda length: [(-1, 0, 1.0)]))),
    "spans unsorted": (
        "test_spans",
        Handmade(spans(lambda length: [(1, 1, 1.0), (0, 0, 1.0)] if length else [])),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_tagger_fails(what):
    failures = (AssertionError, pytest.fail.Exception, UsageError, DataError, ZeroDivisionError, ValueError)
    with pytest.raises(failures):
        run(*BROKEN[what])


def test_every_test_catches_something():
    assert {test for test, _ in BROKEN.values()} == {
        name for name in dir(TaggerTests) if name.startswith("test_")
    }


def test_texts_are_wild_and_always_the_same():
    assert wild_texts() == wild_texts()
    assert wild_texts(5) == list(WILD_TEXTS[:5])
    texts = "".join(wild_texts(200))
    assert {len(char.encode()) for char in texts} == {1, 2, 3, 4}
    assert {"\x00", "\x85", "\u2028", "\u200d", "\r", "\u0301"} <= set(texts)
    assert len({ord(char) >> 16 for char in texts}) == 17


def test_without_pytest_the_import_says_what_is_missing():
    code = "import sys; sys.modules['pytest'] = None\nfrom dolma_dask.testing import TaggerTests"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: dolma_dask.testing.TaggerTests needs pytest: pip install pytest" in done.stderr
