"""Attribute rows: the exact bytes of both forms, and what is refused."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import DataError, SchemaError, UsageError
from dolma_dask.formats import attributes as attribute_file
from dolma_dask.formats.attributes import AttributeColumn, attribute_key, encode_rows, make_variable_name
from dolma_dask.formats.json import write

SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))


def strings(*values):
    return pa.array(values, pa.large_string())


def encode(columns=(), ids=("a",), sources=None, lengths=None, **options):
    sources = strings(*(sources or ["s"] * len(ids)))
    lengths = np.array(lengths or [7] * len(ids), np.int64)
    rows = encode_rows(strings(*ids), sources, lengths, columns, **options)
    assert rows.type == pa.large_binary()
    return [row.decode() for row in rows.to_pylist()]


def document(*values, key="k"):
    return AttributeColumn(key, "document", pa.array(values, pa.float64()))


def attributes(kind, *values, type=None):
    rows = encode(
        [AttributeColumn("k", kind, pa.array(values, type))], ids=[str(i) for i in range(len(values))]
    )
    return [row.split('"attributes":')[1].removesuffix(',"source":"s"}\n') for row in rows]


def test_nested_row():
    columns = [
        document(7.0, key="gopher_v2__gopher_v2__character_count"),
        document(None, key="gone"),
        document(0.5),
    ]
    assert encode(columns, ids=["edge-space"], sources=["edge"]) == [
        '{"id":"edge-space","attributes":{"gopher_v2__gopher_v2__character_count":[[0,7,7.0]],"k":[[0,7,0.5]]},"source":"edge"}\n'
    ]


def test_document_without_findings_keeps_its_row():
    assert encode(ids=["a", "b"]) == [f'{{"id":"{i}","attributes":{{}},"source":"s"}}\n' for i in "ab"]
    assert encode(ids=[]) == []


def test_missing_source_is_written_empty():
    rows = encode_rows(strings("a"), strings(None), np.zeros(1, np.int64), [])
    assert json.loads(rows[0].as_py()) == {"id": "a", "attributes": {}, "source": ""}


def test_unreadable_row_holds_only_its_error():
    columns = [
        document(1.0, np.nan, 3.0),
        AttributeColumn("s", "spans", pa.array([[], [{"start": 0, "end": 1, "score": np.inf}], []], SPANS)),
        AttributeColumn("d", "dict", pa.array([{"x": 1.0}, {"x": np.nan}, {"x": 2.0}])),
    ]
    errors = {1: 'not JSON: "\n'}
    nested = encode(columns, ids=["a", None, "c"], errors=errors)
    assert nested[1] == '{"id":null,"attributes":{},"error":"not JSON: \\"\\n"}\n'
    assert nested[2] == '{"id":"c","attributes":{"k":[[0,7,3.0]],"s":[],"d":{"x":2.0}},"source":"s"}\n'
    assert encode(columns, ids=["a", "b", "c"], errors=errors)[1] == nested[1], (
        "an id that could be read is not repeated"
    )


def test_error_text_with_a_lone_surrogate_can_be_written():
    assert json.loads(encode(errors={0: "bad \udc80"})[0])["error"] == "bad ?"


@pytest.mark.parametrize(
    "score, text",
    [
        (7.0, "7.0"),
        (1 / 3, "0.33333"),
        (1e-5, "1e-05"),
        (9.4e-5, "9e-05"),
        (1e-4, "0.0001"),
        (4e-6, "0.0"),
        (-4e-6, "-0.0"),
        (-0.0, "-0.0"),
        (1 / 64, "0.01562"),
        (3 / 64, "0.04688"),
        (123456789.123456, "123456789.12346"),
        (999999999.999999, "1000000000.0"),
        (98765432109.87654, "98765432109.87654"),
        (123456789012.34567, "123456789012.34567"),
        (-2147483649.000005, "-2147483649.0"),
        (1e16, "1e+16"),
        (9007199254740993.0, "9007199254740992.0"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (5e-324, "0.0"),
    ],
)
def test_scores_are_rounded_as_python_does(score, text):
    assert text == repr(round(score, 5))
    assert encode([document(score)]) == [f'{{"id":"a","attributes":{{"k":[[0,7,{text}]]}},"source":"s"}}\n']


def test_hard_numbers_of_several_columns_stay_in_their_places():
    columns = [document(1e300, 1.0, None, key="a"), document(2e300, 1e200, 5e300, key="b")]
    rows = encode(columns, ids=["x", "y", "z"])
    assert [json.loads(row)["attributes"] for row in rows] == [
        {"a": [[0, 7, 1e300]], "b": [[0, 7, 2e300]]},
        {"a": [[0, 7, 1.0]], "b": [[0, 7, 1e200]]},
        {"b": [[0, 7, 5e300]]},
    ]


def test_document_values_may_be_integers():
    assert attributes("document", 3, None, type=pa.int32()) == ['{"k":[[0,7,3.0]]}', "{}"]


def test_flags_are_integers():
    flags = AttributeColumn("k", "document", pa.array([1.0, None, 1e12, -2.0, 0.0]), whole=True)
    rows = encode([flags, document(*[1.0] * 5, key="x")], ids=list("abcde"), errors={4: "unreadable"})
    found = [row.split('"attributes":')[1].split("}")[0] for row in rows]
    assert found[:3] == [
        '{"k":[[0,7,1]],"x":[[0,7,1.0]]',
        '{"x":[[0,7,1.0]]',
        '{"k":[[0,7,1000000000000]],"x":[[0,7,1.0]]',
    ]
    assert found[3:] == ['{"k":[[0,7,-2]],"x":[[0,7,1.0]]', "{"]


def test_spans():
    span = {"start": 3, "end": 12, "score": 0.333333}
    hard = {"start": 0, "end": 2**62, "score": 1e20}
    assert attributes("spans", [span, hard], None, [], [span], type=SPANS) == [
        '{"k":[[3,12,0.33333],[0,4611686018427387904,1e+20]]}',
        "{}",
        '{"k":[]}',
        '{"k":[[3,12,0.33333]]}',
    ]


def test_spans_hidden_below_a_null_are_not_looked_at():
    child = pa.array(
        [{"start": 0, "end": 1, "score": np.nan}, {"start": 2, "end": 3, "score": 1.0}], SPANS.value_type
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), child, mask=pa.array([True, False]))
    rows = encode([AttributeColumn("k", "spans", lists)], ids=["a", "b"])
    assert [json.loads(row)["attributes"] for row in rows] == [{}, {"k": [[2, 3, 1.0]]}]


@pytest.mark.parametrize(
    "values, texts",
    [
        (pa.array([1, None, -(2**63)]), ["1", None, str(-(2**63))]),
        (pa.array([2**64 - 1], pa.uint64()), [str(2**64 - 1)]),
        (pa.array([0.1 + 0.2, None, -0.0, 1e-7]), ["0.30000000000000004", None, "-0.0", "1e-07"]),
        (pa.array([True, False]), ["true", "false"]),
        (
            strings('a"\\\b\f\n\r\t\x00\x1f\x7f/é\u2028😀', "", None),
            ['"a\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f/é\u2028😀"', '""', None],
        ),
        (pa.nulls(2), [None, None]),
    ],
)
def test_scalars(values, texts):
    rows = encode([AttributeColumn("k", "scalar", values)], ids=["x"] * len(values))
    assert rows == [
        '{"id":"x","attributes":{' + ("" if text is None else f'"k":{text}') + '},"source":"s"}\n'
        for text in texts
    ]


def test_dicts():
    struct = pa.struct([("en", pa.float64()), ('q"', pa.int64()), ("ok", pa.bool_())])
    assert attributes("dict", {"en": 0.123456789, 'q"': 3, "ok": True}, {'q"': 1}, None, {}, type=struct) == [
        '{"k":{"en":0.123456789,"q\\"":3,"ok":true}}',
        '{"k":{"q\\"":1}}',
        "{}",
        '{"k":{}}',
    ]
    maps = pa.map_(pa.string(), pa.float64())
    assert attributes(
        "dict", [("en", 0.9), ("de", None), ("\n", 1.0)], [], None, [("a", None)], [("b", 1e-7)], type=maps
    ) == [
        '{"k":{"en":0.9,"\\n":1.0}}',
        '{"k":{}}',
        "{}",
        '{"k":{}}',
        '{"k":{"b":1e-07}}',
    ]


def test_keys_are_escaped():
    assert encode([document(1.0, key='a"é')]) == [
        '{"id":"a","attributes":{"a\\"é":[[0,7,1.0]]},"source":"s"}\n'
    ]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["document", "spans", "scalar", "struct", "map"])
def test_numbers_that_json_cannot_hold_are_refused_with_their_place(kind, bad):
    values = {
        "document": pa.array([1.0, bad]),
        "spans": pa.array(
            [[{"start": 0, "end": 1, "score": 1.0}], [{"start": 0, "end": 1, "score": bad}]], SPANS
        ),
        "scalar": pa.array([1.0, bad]),
        "struct": pa.array([{"en": 1.0}, {"en": bad}]),
        "map": pa.array([[("en", 1.0)], [("de", 1.0), ("en", bad)]], pa.map_(pa.string(), pa.float64())),
    }[kind]
    column = AttributeColumn("k", "dict" if kind in ("struct", "map") else kind, values)
    with pytest.raises(DataError, match=r"'k(\.en)?' is .*(nan|inf).* at row 1"):
        encode([column], ids=["a", "b"])


def test_incomplete_spans_are_refused():
    spans = pa.array([[], [{"start": 0, "end": None, "score": 1.0}]], SPANS)
    with pytest.raises(DataError, match="span without end at row 1"):
        encode([AttributeColumn("k", "spans", spans)], ids=["a", "b"])


@pytest.mark.parametrize(
    "kind, values",
    [
        ("document", pa.array(["x"])),
        ("spans", pa.array([1.0])),
        ("spans", pa.array([[{"begin": 1}]])),
        ("scalar", pa.array([[1]])),
        ("dict", pa.array([1.0])),
        ("dict", pa.array([{"a": [1]}])),
        ("dict", pa.array([[("a", "x")]], pa.map_(pa.string(), pa.string()))),
    ],
)
def test_types_that_a_kind_cannot_have_are_refused(kind, values):
    with pytest.raises(SchemaError, match=r"'k.* of kind"):
        encode([AttributeColumn("k", kind, values)])


def test_calls_that_cannot_be_right_are_refused():
    with pytest.raises(DataError, match="row 1 has a null id"):
        encode(ids=["a", None])
    with pytest.raises(DataError, match="row 3, but there are 1 rows"):
        encode(errors={3: "?"})
    with pytest.raises(SchemaError, match="'k' would stand twice"):
        encode([document(1.0), document(2.0)])
    with pytest.raises(SchemaError, match="k has 2 rows, ids has 1"):
        encode([document(1.0, 2.0)])
    with pytest.raises(SchemaError, match="lengths has 2 rows"):
        encode(lengths=[1, 2])


def test_kernels_are_compiled_once():
    """Arrow's buffers are read-only or not depending on where they come from, and slices are views: no new kernels."""
    columns = [
        document(1.0, 2.0),
        AttributeColumn("s", "spans", pa.array([[{"start": 0, "end": 1, "score": 1.0}], None], SPANS)),
        AttributeColumn("f", "scalar", pa.array([0.1, None])),
    ]
    stored = pa.BufferOutputStream()
    batch = pa.record_batch(
        [strings("a", "b"), *(c.values for c in columns)], ["id", *(c.key for c in columns)]
    )
    with pa.ipc.new_stream(stored, batch.schema) as writer:
        writer.write_batch(batch)
    loaded = pa.ipc.open_stream(stored.getvalue().to_pybytes()).read_next_batch()
    kernels = (
        write._write_strings,
        write._write_numbers,
        write._write_spans,
        attribute_file._write_rows,
    )
    known = []
    for source in (batch, loaded, loaded.slice(1), batch.slice(2)):
        ids = source["id"]
        lengths = np.arange(10, dtype=np.int64)[::5][: len(ids)]
        lengths.flags.writeable = source is batch
        encode_rows(ids, ids, lengths, [AttributeColumn(c.key, c.kind, source[c.key]) for c in columns])
        known.append([set(kernel.calls) for kernel in kernels])  # other tests may have called them before
    assert all(known[0])
    assert known == [known[0]] * len(known)


def test_variable_names():
    assert make_variable_name("lang-id.v1 é") == "lang_id_v1__"
    assert make_variable_name("_x") == "_x"
    for bad in ("", "3grams"):
        with pytest.raises(UsageError, match="starts with a letter"):
            make_variable_name(bad)


def test_attribute_keys():
    assert attribute_key("exp-1", "gopher_v2", "word count") == "exp_1__gopher_v2__word_count"
    assert attribute_key(None, "c4_v1", "line_count") == "c4_v1__c4_v1__line_count"


@pytest.mark.slow
@pytest.mark.conformance
def test_rows_of_the_dolma_toolkit_come_out_byte_for_byte(shared):
    """Scores of gopher_v2 on 249 documents, read from the toolkit's file and written again."""
    root = shared / "conformance/dolma/in/attributes"
    files = sorted(
        [
            *root.glob("gopher_v2/**/*.gz"),
            *root.glob("c4_v1/**/*.gz"),
            *root.glob("uniseg_length_paragraphs_v1/**/*.gz"),
        ]
    )
    assert files
    for file in files:
        for line in gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True):
            row = json.loads(line)
            columns = [
                AttributeColumn(
                    key,
                    "spans",
                    pa.array([[dict(zip(("start", "end", "score"), s, strict=True)) for s in spans]], SPANS),
                )
                for key, spans in row["attributes"].items()
            ]
            assert encode(columns, ids=[row["id"]], sources=[row["source"]]) == [line]
