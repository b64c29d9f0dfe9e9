"""Taggers made from functions: what they may return, and what is said when they return something else."""

import importlib
import os
import pickle
import re
import subprocess
import sys

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dolma_dask.errors import DataError, UsageError
from dolma_dask.taggers import registry
from dolma_dask.taggers.functions import SPANS
from dolma_dask.taggers.registry import tagger
from dolma_dask.testing.taggers import TaggerTests


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


def texts(*values, **columns):
    arrays = {"text": values, **columns}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(items, pa.large_string()) for name, items in arrays.items()}
    )


def everything(text):
    """One value of every kind."""
    spans = [(match.start(), match.end(), 0.5) for match in re.finditer("[aeiou]", text)]
    return {
        "length": len(text),
        "vowels": reversed(spans),
        "long": len(text) > 20,
        "first": text[:1] or None,
        "count": np.int32(len(text)),
        "letters": {"a": text.count("a"), "b": text.count("b")},
    }


KINDS = {"length": "document", "vowels": "spans", "long": bool, "first": str, "count": int, "letters": "dict"}


class TestOneTextTagger(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return tagger(name="everything_v1", types=KINDS)(everything)


class TestBatchTagger(TaggerTests):
    @pytest.fixture
    def tagger(self):
        @tagger(name="bytes_v1", types="bytes")
        def count(batch: pa.RecordBatch) -> pa.RecordBatch:
            lengths = pc.binary_length(batch.column("text")).cast(pa.float64())
            return pa.RecordBatch.from_arrays([lengths], names=["bytes"])

        return count


class TestTwoColumns(TaggerTests):
    @pytest.fixture
    def tagger(self):
        return tagger(name="same_v1", types={"same": bool}, reads=("text", "id"))(lambda text, id: id in text)


def test_values_become_columns():
    made = tagger(name="everything_v1", types=KINDS)(everything)
    tagged = made(texts("aab", ""))
    assert tagged.schema.types == [
        pa.float64(),
        SPANS,
        pa.bool_(),
        pa.string(),
        pa.int64(),
        pa.map_("string", "double"),
    ]
    assert tagged.to_pylist()[0] == {
        "length": 3.0,
        "vowels": [{"start": 0, "end": 1, "score": 0.5}, {"start": 1, "end": 2, "score": 0.5}],
        "long": False,
        "first": "a",
        "count": 3,
        "letters": [("a", 2.0), ("b", 1.0)],
    }
    assert tagged.to_pylist()[1]["first"] is None
    assert tagged.to_pylist()[1]["vowels"] == []


def test_none_and_missing_types_are_null():
    made = tagger(name="some_v1", types=["a", "b"])(lambda text: {"b": 1} if text else None)
    assert made(texts("x", "")).to_pylist() == [{"a": None, "b": 1.0}, {"a": None, "b": None}]


def test_only_type_is_returned_bare():
    assert tagger(name="n_v1", types="n")(len)(texts("abc")).to_pylist() == [{"n": 3.0}]
    made = tagger(name="d_v1", types={"d": "dict"})(lambda text: {"d": 2})
    assert made(texts("abc")).to_pylist() == [{"d": [("d", 2.0)]}]


def test_scalar_takes_its_type_from_the_annotation():
    def first(text) -> str:
        return text[:1]

    assert tagger(types={"first": "scalar"})(first)(texts("abc")).schema.types == [pa.string()]
    with pytest.raises(UsageError, match="write bool, int, float or str in place of 'scalar'"):
        tagger(name="x", types={"x": "scalar"})(lambda text: text)


def test_one_argument_for_each_column_read():
    made = tagger(name="pair_v1", types="n", reads=("id", "text"))(lambda id, text: len(id) * 10 + len(text))
    assert made(texts("abc", id=["xy"])).to_pylist() == [{"n": 23.0}]


def divide(text):
    return 1 / (len(text) - 3)


@pytest.mark.parametrize("error", [SystemExit(0), GeneratorExit()])
def test_what_would_stop_python_is_named_too(error):
    def fails(text: str) -> float:
        raise error

    with pytest.raises(DataError, match=rf"tagger 'fails_v1' failed on row 0 .*{type(error).__name__}"):
        tagger(name="fails_v1", types="x")(fails)(texts("abc"))


def test_failing_document_is_named():
    made = tagger(name="divide_v1", types="x")(divide)
    with pytest.raises(DataError) as caught:
        made(texts("a", "abc", id=["first", "second"]))
    message = str(caught.value)
    assert message.startswith(
        "tagger 'divide_v1' failed on row 1 of the batch (id 'second'): ZeroDivisionError: "
    )
    assert "`.function` on this text" in message
    assert "None" in message
    assert caught.value.details == {"tagger": "divide_v1", "row": 1, "id": "second"}
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    with pytest.raises(DataError, match="row 0 of the batch: ZeroDivisionError"):
        made(texts("abc"))


@pytest.mark.parametrize(
    "kind, returned, expected",
    [
        ("document", "1", "expected a finite number"),
        ("document", float("nan"), "expected a finite number"),
        ("document", float("inf"), "expected a finite number"),
        ("document", [1], "expected a finite number"),
        ("document", 2**53 + 1, "expected a number that a float holds whole, or a str"),
        (str, "\ud800", "expected characters, found a lone surrogate"),
        ("dict", {"\ud800": 1}, "expected characters, found a lone surrogate"),
        (bool, 1, "expected bool"),
        (str, 1, "expected str"),
        (int, 1.5, "expected int"),
        (float, "x", "expected a finite number"),
        ("dict", [("a", 1)], "expected a dict of str to numbers"),
        ("dict", {1: 1}, "expected a dict of str to numbers"),
        ("dict", {"a": "x"}, "expected a finite number"),
        ("spans", 5, r"expected a list of \(start, end, score\)"),
        ("spans", "abc", r"expected a list of \(start, end, score\)"),
        ("spans", [5], r"expected \(start, end, score\)"),
        ("spans", [(0, 1)], r"expected \(start, end, score\)"),
        ("spans", [(0, 4, 1)], "expected integers 0 <= start <= end inside a text of 3 characters"),
        ("spans", [(2, 1, 1)], "expected integers 0 <= start <= end"),
        ("spans", [(-1, 1, 1)], "expected integers 0 <= start <= end"),
        ("spans", [(0.0, 1, 1)], "expected integers 0 <= start <= end"),
        ("spans", [(0, 1, None)], "expected a finite number"),
    ],
)
def test_wrong_value_is_named(kind, returned, expected):
    made = tagger(name="wrong_v1", types={"x": kind})(lambda text: returned)
    with pytest.raises(
        DataError, match=f"^tagger 'wrong_v1' failed on row 0 of the batch: returned .*; {expected}"
    ) as caught:
        made(texts("abc"))
    assert "DataError" not in str(caught.value)


@pytest.mark.parametrize("returned", [1, {"a": 1, "z": 2}, [1, 2]])
def test_several_types_need_a_dict(returned):
    made = tagger(name="wrong_v1", types=["a", "b"])(lambda text: returned)
    with pytest.raises(DataError, match=r"expected a dict with keys among \['a', 'b'\], or None"):
        made(texts("abc"))


@pytest.mark.parametrize(
    "returned, expected",
    [
        (lambda batch: 5, "expected a pyarrow RecordBatch"),
        (lambda batch: batch.slice(1), "expected one row for each"),
        (lambda batch: batch, r"returned the columns \['text'\]; its types are \['n'\]"),
        (
            lambda batch: batch.rename_columns(["n"]),
            "returned column 'n' as large_string, which is not of kind 'document'",
        ),
        (lambda batch: batch.column("nothing"), "failed on a batch of 2 documents: KeyError"),
    ],
)
def test_wrong_batch_is_named(returned, expected):
    made = tagger(name="wrong_v1", types="n", batch=True)(returned)
    with pytest.raises(DataError, match=f"^tagger 'wrong_v1' .*{expected}"):
        made(texts("a", "b"))


def test_batch_columns_may_come_in_any_order():
    def both(batch: "pa.RecordBatch"):
        return pa.RecordBatch.from_pydict({"b": [1.0], "a": [2.0]})

    assert tagger(name="both_v1", types=["a", "b"])(both)(texts("x")).to_pylist() == [{"a": 2.0, "b": 1.0}]


@pytest.mark.parametrize(
    "options, function, expected",
    [
        ({"name": "1x", "types": "n"}, len, "has the name '1x'; expected letters, digits and underscores"),
        ({"name": "a b", "types": "n"}, len, "has the name 'a b'"),
        ({"types": "n"}, lambda text: 1, "has the name '<lambda>'"),
        ({"name": "x", "types": "a b"}, len, "has the type 'a b'"),
        ({"name": "x", "types": []}, len, "needs at least one type"),
        ({"name": "x", "types": "n", "reads": ()}, lambda: 1, "one column to read"),
        ({"name": "x", "types": {"n": "span"}}, len, "type 'n' of kind 'span'; expected one of"),
        ({"name": "x", "types": {"n": list}}, len, "type 'n' of kind <class 'list'>; expected one of"),
        (
            {"name": "x", "types": "n", "reads": ("text", "id")},
            lambda text: 1,
            r"takes \(text\), but is called with 2",
        ),
        ({"name": "gopher_v2", "types": "n"}, len, "'gopher_v2' is a tagger shipped with dolma_dask"),
    ],
)
def test_impossible_tagger_is_refused_when_it_is_made(options, function, expected):
    with pytest.raises(UsageError, match=expected):
        tagger(**options)(function)


IN_MAIN = """
import re, sys
import cloudpickle
from dolma_dask.taggers.registry import tagger

VOWELS = re.compile("[aeiou]")

def count(text):
    return len(VOWELS.findall(text))

@tagger(name="vowels_v1", types="n")
def vowels(text):
    "Number of vowels."
    return count(text) * FACTOR

FACTOR = 3
sys.stdout.buffer.write(cloudpickle.dumps((vowels.version, vowels)))
"""
ON_WORKER = """
import pickle, sys
import pyarrow as pa
version, tagger = pickle.loads(sys.stdin.buffer.read())
batch = pa.RecordBatch.from_arrays([pa.array(["banana", ""], pa.large_string())], names=["text"])
assert tagger.version == version
assert (tagger.name, tagger.function.__doc__, dict(tagger.types)) == ("vowels_v1", "Number of vowels.", {"n": "document"})
assert tagger(batch).to_pylist() == [{"n": 9.0}, {"n": 0.0}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("as_file", [False, True])
def test_tagger_of_a_notebook_works_in_another_process(tmp_path, as_file):
    """Its module, ``__main__``, does not exist there, nor does its source."""
    (tmp_path / "main.py").write_text(IN_MAIN)
    command = [str(tmp_path / "main.py")] if as_file else ["-c", IN_MAIN]
    made = subprocess.run([sys.executable, *command], capture_output=True, check=True)
    (tmp_path / "main.py").unlink()
    done = subprocess.run(
        [sys.executable, "-c", ON_WORKER], input=made.stdout, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_version_is_fixed_by_pickling():
    made = tagger(name="n_v1", types="n")(divide)
    sent = pickle.loads(cloudpickle.dumps(made))
    assert sent.fixed_version == made.version
    assert made.fixed_version is None
    assert tagger(name="n_v1", types="n", version=7)(divide).version == 7


LATE = """
import pickle, sys
import late_values
from dolma_dask.errors import DataError
import pyarrow as pa
batch = pa.record_batch({"text": pa.array(["x"], pa.large_string())})
tagger = pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    print(tagger(batch).to_pydict())
except DataError as error:
    print(error)
"""


@pytest.mark.slow
def test_values_changed_after_the_import_do_not_get_lost_in_another_process(tmp_path, monkeypatch):
    """Attributes would be known under a version that is not theirs."""
    source = "from dolma_dask import tagger\nK = 1.0\ndef score(text):\n    return K\n@tagger(name='late', types='n')\ndef late(text: str) -> float:\n    return score(text)\n"
    (tmp_path / "late_values.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("late_values")

    def elsewhere() -> str:
        words = [sys.executable, "-c", LATE, cloudpickle.dumps(module.late).hex()]
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
        )
        return done.stdout

    assert elsewhere() == "{'n': [1.0]}\n"
    module.K = 5.0
    assert "'late' would do something else in this process" in elsewhere()
