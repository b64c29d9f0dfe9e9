"""Laws of the reading of attribute rows and of numbers, on wild lines: kernel, exact parser and a slow oracle have to agree."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from json_oracle import (
    RejectedLineError,
    Value,
    arrays,
    broken,
    damaged,
    deep_values,
    identity_of,
    numbers,
    objects,
    read_line,
    strings,
    values,
)

from dolma_dask.formats.json import attributes
from dolma_dask.formats.json.attributes import (
    AttributeBatch,
    AttributeKind,
    Form,
    guess_form,
    parse_row,
    path_of,
    row_fields,
    sample_kinds,
    scan_attributes,
    scan_objects,
    value_kind,
)
from dolma_dask.formats.json.exact import Field, LineError
from dolma_dask.formats.json.exact import Value as Read
from dolma_dask.formats.json.lines import Lines
from dolma_dask.formats.json.numbers import read_number
from dolma_dask.formats.json.strings import line_starts
from dolma_dask.formats.metadata import field_kind, metadata_shapes, scan_metadata
from dolma_dask.text.kernels import kernel

KEYS: dict[str, AttributeKind] = {
    "a__doc": "document",
    "a__doc2": "document",
    "a__spans": "spans",
    "a__spans_with_a_name_that_is_longer_than_sixty-four_bytes_so_that_two_compares_are_needed": "spans",
    "score": "number",
    "flag": "bool",
    "label": "string",
    "lang.en": "dict",
    "lang.": "dict",
    "lang.é.x": "dict",
    "other.id": "dict",
}
OUTER_KEYS = [key.partition(".")[0] if kind == "dict" else key for key, kind in KEYS.items()]
KEY_LISTS = st.sampled_from([KEYS, {"score": "number"}, {"a__spans": "spans", "lang.en": "dict"}, {}])
FORMS = st.sampled_from(["nested", "flat"])

bounds = st.one_of(
    st.integers(0, 2000).map(str),
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(["0", "0.0", "1e2", "-0", "2.5"]),
)
spans = st.one_of(
    st.tuples(bounds, bounds, numbers).map(lambda span: f"[{span[0]},{span[1]}, {span[2]}]"), arrays(numbers)
)
document_scores = st.one_of(
    st.tuples(st.integers(0, 5000), numbers).map(lambda pair: f"[[0,{pair[0]},{pair[1]}]]"), st.just("[]")
)
span_lists = st.one_of(document_scores, arrays(spans))
inner_objects = objects(
    st.one_of(st.sampled_from(['"en"', '"é.x"', '""', '"id"', '"fr"']), strings()),
    st.one_of(numbers, numbers, st.just("null"), values),
    4,
)
attribute_values = st.one_of(
    document_scores, span_lists, numbers, strings(), inner_objects, values, deep_values
)
known = st.sampled_from([f'"{key}"' for key in OUTER_KEYS])


@st.composite
def fitting_pairs(draw: st.DrawFn) -> list[str]:
    """Write a key and a value of its kind, for some of the keys in their order."""
    kinds: dict[str, st.SearchStrategy[str]] = {
        "document": document_scores,
        "spans": span_lists,
        "number": numbers,
        "bool": st.sampled_from(["true", "false"]),
        "string": strings(),
        "dict": inner_objects,
    }
    wanted = dict(zip(OUTER_KEYS, KEYS.values(), strict=True))
    chosen = draw(st.sets(st.sampled_from(list(wanted)), min_size=0))
    return [f'"{key}": {draw(kinds[kind])}' for key, kind in wanted.items() if key in chosen]


@st.composite
def rows(draw: st.DrawFn) -> bytes:
    """Write a row, mostly as a tagger would, in either form."""
    if draw(st.booleans()):
        pairs = draw(fitting_pairs())
    else:
        keys = st.one_of(known, known, st.just('"id"'), strings())
        pairs = [
            f"{key}:{value}" for key, value in draw(st.lists(st.tuples(keys, attribute_values), max_size=4))
        ]
    identity = draw(st.one_of(strings(), strings(), st.sampled_from(["null", "1", "-0", "1e2"]), numbers))
    fields = [f'"id":{identity}', f'"source": {draw(st.one_of(strings(), st.just("null"), st.just("{}")))}']
    fields = fields[: draw(st.sampled_from([2, 2, 2, 1, 0]))]
    if draw(st.integers(0, 3)):
        fields.append('"attributes":{' + ",".join(pairs) + "}")
    elif draw(st.booleans()):
        fields.extend(pairs)
    else:
        fields.append(f'"attributes":{draw(values)}')
    if draw(st.integers(0, 5)) == 0:
        fields.append('"error":"why"')
    if draw(st.booleans()):
        fields.reverse()
    return ("{" + ", ".join(fields) + "}").encode()


broken_rows = st.builds(
    lambda key, value: f'{{"id":"x","attributes":{{{key}:{value}}}}}'.encode(), known, broken
)
lines = st.one_of(
    rows(),
    rows(),
    damaged(rows()),
    broken_rows,
    st.sampled_from([b"", b"{}", b"[]", b'{"id":"a","attributes":{}}']),
)


ROW_PARTS = [
    '"a__doc":[[0,12,0.5]]',
    '"a__doc":[[1,12,0.5]]',
    '"a__doc":[[0,12,0.5],[0,12,0.5]]',
    '"a__doc":[ [ 0 , 12 , 1e2 ] ]',
    '"a__doc":[[-0,12,1]]',
    '"a__doc":[[0,12]]',
    '"a__doc":[[0,12,1,2]]',
    '"a__doc":[[0,12,null]]',
    '"a__doc":[0,12,1]',
    '"a__doc":[[0,12,1]',
    '"a__doc":[[0,12,1],]',
    '"a__doc":0.5',
    '"a__doc":null',
    '"a__doc":[[0,999999999999999999,1]]',
    '"a__doc":[[0,9223372036854775807,1]]',
    '"a__doc":[[0,9223372036854775808,1]]',
    '"a__doc":[[0,-9223372036854775808,1]]',
    '"a__doc":[[0,012,1]]',
    '"a__doc":[[0,12,01]]',
    '"a__doc":[[0,12.0,1]]',
    '"a__doc":[[0,12.5,1]]',
    '"a__spans":[]',
    '"a__spans":[[1,2,3],[2,3,0.25]]',
    '"a__spans":[[1,2,3][2,3,0.25]]',
    '"a__spans":[[1,2,3],[2,3]]',
    '"a__spans":{}',
    '"score":1, "score":2',
    '"score":true',
    '"score":"1"',
    '"score":12345678901234567890123',
    '"score":1e999',
    '"score":0.1234567890123456789',
    '"flag":true',
    '"flag":false',
    '"flag":truth',
    '"flag":1',
    '"flag":null',
    '"label":"\\u00e9 \\n"',
    '"label":7',
    '"lang":{"en":0.5, "fr":0.25, "é.x":1}',
    '"lang":{"en":0.5, "en":0.25}',
    '"lang":{"en":"a"}',
    '"lang":{"fr":"a", "":3}',
    '"lang":{}',
    '"lang":{"en":1}, "other":{}, "en":2, "id":3',
    '"lang":{}, "en":2',
    '"lang":{"en":"a"}, "en":{"en":3}',
    '"lang":null',
    '"lang":[]',
    '"lang":{"en":true}',
    '"lang":{"\\u0065n":1}',
    '"\\u0073core":1',
    '"other":{"id":4, "en":"not wanted here"}',
    '"en":"not wanted here", "fr":1',
    '"lang.en":"another key"',
]
CRAFTED = [
    line.replace("%", part).encode()
    for part in ROW_PARTS
    for line in (
        '{"id":"i","source":"s","attributes":{%}}',
        '{"attributes":{"z":[1], %, "score": 7.5} ,"source":"s","id":"i","en":"x"}',
        '{"attributes":{%, "a__spans": [[5,6,7.0]]},"id":"i","source":null}',
        '{"id":"i","source":"s",%}',
        '{"id":17 ,"source":"s","attributes":{%}}',
        '{"attributes":{%},"id":-17}',
        '{"id":17.0,%}',
        '{"id":null,"attributes":{%},"error":"why"}',
        '{"source":"s","attributes":{%}}',
        '{"id":"i","attributes":{%},"attributes":{"score":3}}',
    )
]
"""Rows with each part, in both forms, before and behind other keys; bad rows stand between good ones."""


class WrongRowError(Exception):
    """The row is no valid attribute row."""


def require(condition: bool) -> None:
    if not condition:
        raise WrongRowError


def as_double(value: Value) -> float:
    require(value.kind == "number")
    found = float(value.raw)
    require(not math.isinf(found))
    return found


def as_bound(value: Value) -> int:
    found = as_double(value)
    require(found.is_integer())
    whole = int(value.raw) if set(value.raw) <= set("-0123456789") else int(found)
    require(-(2**63) <= whole < 2**63)
    return whole


def as_spans(value: Value) -> list[dict[str, float]]:
    require(value.kind == "array")
    for item in value.items:
        require(item.kind == "array" and len(item.items) == 3)
    return [
        {"start": as_bound(item.items[0]), "end": as_bound(item.items[1]), "score": as_double(item.items[2])}
        for item in value.items
    ]


def as_kind(value: Value | None, kind: AttributeKind) -> object:
    if value is None or value.kind == "null":
        return None
    if kind == "number":
        return as_double(value)
    if kind in ("bool", "string"):
        require(value.kind == {"bool": "boolean", "string": "string"}[kind])
        return value.meaning
    found = as_spans(value)
    if kind == "spans":
        return found
    require(len(found) <= 1 and all(span["start"] == 0 for span in found))
    return found[0]["score"] if found else None


def read_row(
    line: bytes, keys: dict[str, AttributeKind], form: Form, *, ids_as_text: bool = False
) -> list[object]:
    """Return id, source and the values by the oracle.

    Raises
    ------
    RejectedLineError, WrongRowError
        The row is not valid.
    """
    row = read_line(line)
    identity, source, error = row.last("id"), row.last("source"), row.last("error")
    is_error = (
        identity is not None and identity.kind == "null" and error is not None and error.kind == "string"
    )
    name = (
        None if identity is None or not (ids_as_text or identity.kind == "string") else identity_of(identity)
    )
    require(is_error or name is not None)
    require(source is None or source.kind in ("string", "null"))
    holder = row.last("attributes")
    if form == "nested":
        require(holder is not None and holder.kind == "object")
        assert holder is not None
    else:
        require(is_error or holder is None or holder.kind == "null")
        holder = row
    found: list[object] = []
    for key, kind in keys.items():
        outer, _, inner = key.partition(".")
        value = holder.last(outer if kind == "dict" else key)
        if kind == "dict":
            require(value is None or value.kind in ("null", "object"))
            value = value.last(inner) if value is not None and value.kind == "object" else None
        found.append(as_kind(value, "number" if kind == "dict" else kind))
    return [name, source.meaning if source else None, *found]


def expected(
    line: bytes, keys: dict[str, AttributeKind], form: Form, *, ids_as_text: bool = False
) -> list[object] | None:
    try:
        return read_row(line, keys, form, ids_as_text=ids_as_text)
    except (RejectedLineError, WrongRowError):
        return None


def as_block(lines: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    block = np.frombuffer(b"".join(line + b"\n" for line in lines), np.uint8)
    return block, line_starts(block)


def as_line(pairs: list[str], form: Form) -> bytes:
    """Write a row with these keys and values."""
    inside = '"attributes":{' + ",".join(pairs) + "}" if form == "nested" else ",".join([*pairs, '"z":1'])
    return ('{"id":"x",' + inside + "}").encode()


def as_rows(batch: AttributeBatch) -> list[list[object]]:
    columns = [batch.ids, batch.sources, *batch.columns.values()]
    for column in columns:
        column.validate(full=True)
    return [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@given(lines, KEY_LISTS, FORMS, st.booleans())
@example(b'{"id":"a","attributes":{"score":1e400}}', {"score": "number"}, "nested", False)
@example(b'{"id":"a","attributes":{"a__doc":[[0,9223372036854775808,1]]}}', KEYS, "nested", False)
@example(b'{"id":null,"attributes":{},"error":"gone"}', KEYS, "nested", True)
@example(b'{"id":null,"attributes":{},"error":"gone"}', KEYS, "flat", False)
def test_the_exact_parser_accepts_what_the_oracle_accepts(
    line: bytes, keys: dict[str, AttributeKind], form: Form, ids_as_text: bool
) -> None:
    right = expected(line, keys, form, ids_as_text=ids_as_text)
    try:
        found = parse_row(line, row_fields(keys, form, ids_as_text=ids_as_text))
    except LineError:
        assert right is None
    else:
        assert found == right


@given(st.lists(lines, max_size=6), KEY_LISTS, FORMS, st.booleans())
@example(CRAFTED, KEYS, "nested", False)
@example(CRAFTED, KEYS, "flat", False)
@example(CRAFTED, KEYS, "nested", True)
@example(CRAFTED, KEYS, "flat", True)
@example(CRAFTED[:], {"a__spans": "spans", "lang.en": "dict"}, "nested", False)
def test_a_scan_reads_every_valid_row_and_names_every_other(
    rows: list[bytes], keys: dict[str, AttributeKind], form: Form, ids_as_text: bool
) -> None:
    batch = scan_attributes(*as_block(rows), keys, form, ids_as_text=ids_as_text)
    rights = [expected(line, keys, form, ids_as_text=ids_as_text) for line in rows]
    assert [row for row, _ in batch.errors] == [row for row, right in enumerate(rights) if right is None]
    nothing = [None] * (2 + len(keys))
    assert as_rows(batch) == [nothing if right is None else right for right in rights]


@given(st.lists(fitting_pairs(), min_size=1, max_size=5), FORMS)
def test_the_kernel_declines_no_ordinary_row(pair_lists: list[list[str]], form: Form) -> None:
    """Only numbers that are long or extreme, escaped keys and unusual span bounds may go to the slow parser."""
    rows = [as_line(pairs, form) for pairs in pair_lists]
    handed: list[bytes] = []

    def note(line: bytes, fields: list[Field]) -> list[Read]:
        handed.append(line)
        return parse_row(line, fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attributes, "parse_row", note)
        scan_attributes(*as_block(rows), KEYS, form)
    for line in handed:
        assert expected(line, KEYS, form) is None or is_unusual(read_line(line))


def is_unusual(value: Value) -> bool:
    """Return whether a value holds a number or key the kernel may decline."""
    if value.kind == "number":
        digits = sum(char.isdigit() for char in value.raw.lower().partition("e")[0])
        magnitude = abs(float(value.raw))
        return digits > 15 or "e" in value.raw.lower() or not (1e-290 < magnitude < 1e290 or magnitude == 0)
    is_span = len(value.items) == 3 and all(item.kind == "number" for item in value.items)
    if is_span and any(not set(item.raw) <= set("0123456789") for item in value.items[:2]):
        return True
    children = [*value.items, *(child for _, child in value.pairs)]
    names = [key.meaning for key, _ in value.pairs]
    return (
        any(key.escaped for key, _ in value.pairs)
        or len(names) != len(set(names))
        or any(is_unusual(child) for child in children)
    )


PATHS: dict[str, AttributeKind] = {
    "a.s": "path_string",
    "a.b.n": "path_number",
    "a.b.ok": "path_bool",
    "a.b.c.d.e.f.s": "path_string",
    "a.m": "dict",
    "b.n": "path_number",
    "s": "string",
}


@st.composite
def trees(
    draw: st.DrawFn, paths: tuple[tuple[str, ...], ...] = tuple(tuple(key.split(".")) for key in PATHS)
) -> str:
    """Write an object in which most members are of the kind that is read."""
    scalars = {"s": strings(), "n": numbers, "m": numbers, "ok": st.sampled_from(["true", "false"])}
    pairs = []
    for name in draw(st.permutations(sorted({path[0] for path in paths}))):
        inside = tuple(path[1:] for path in paths if path[0] == name and len(path) > 1)
        value = draw(trees(inside)) if inside else draw(scalars[name])
        value = draw(st.sampled_from([value] * 12 + ["null", "{}", None, '"odd"', "[1]", "2"]))
        pairs += [] if value is None else [f'"{name}": {value}']
    pairs += draw(
        st.sampled_from([[]] * 6 + [['"z":{"s":1,"a":{}}'], ['"s":"again"'], ['"\\u0061":{"s":"x"}']])
    )
    return "{" + " ,".join(pairs) + "}"


def at_path(value: Value | None, path: list[str]) -> Value | None:
    for name in path:
        require(value is None or value.kind in ("null", "object"))
        value = value.last(name) if value is not None and value.kind == "object" else None
    return value


@given(st.lists(trees(), max_size=5))
def test_values_of_objects_in_objects(texts: list[str]) -> None:
    columns, errors = scan_objects(pa.array(texts, pa.large_string()), PATHS)
    rights: list[list[object] | None] = []
    for text in texts:
        root = read_line(text.encode())
        try:
            rights.append(
                [as_kind(at_path(root, path_of(key, kind)), value_kind(kind)) for key, kind in PATHS.items()]
            )
        except WrongRowError:
            rights.append(None)
    assert [row for row, _ in errors] == [row for row, right in enumerate(rights) if right is None]
    found = [list(row) for row in zip(*(column.to_pylist() for column in columns.values()), strict=True)]
    assert found == [[None] * len(PATHS) if right is None else right for right in rights]


@given(st.lists(trees(), min_size=1, max_size=5))
def test_sampled_kinds_of_objects_in_objects(texts: list[str]) -> None:
    """A scalar that is found has one kind in all rows; a row is refused only where something else stands in the place of an object."""
    rows = pa.array(texts, pa.large_string())
    roots = [read_line(text.encode()) for text in texts]
    kinds = {name: field_kind(shapes) for name, shapes in metadata_shapes(rows).items()}
    for name, kind in ((name, kind) for name, kind in kinds.items() if kind is not None):
        found, errors = scan_metadata(rows, {name: kind})
        bad = dict(errors)
        for row, root in enumerate(roots):
            try:
                value = at_path(root, path_of(name.removeprefix("metadata."), kind))
            except WrongRowError:
                assert row in bad
            else:
                there = value is not None and value.kind != "null"
                assert row in bad or found[name][row].is_valid == there
                assert row not in bad or "fits a double" in bad[row].expected or value.kind == "object"


@given(st.lists(fitting_pairs(), min_size=1, max_size=4), FORMS)
def test_sampled_kinds_read_the_sampled_rows(pair_lists: list[list[str]], form: Form) -> None:
    rows = [as_line(pairs, form) for pairs in pair_lists]
    assert {guess_form([row]) for row in rows} == {form}
    kinds = sample_kinds(rows, form)
    batch = scan_attributes(*as_block(rows), kinds, form)
    assert all("fits a double" in error.expected for _, error in batch.errors)


@kernel
def numbers_at(base: int, starts: np.ndarray, values: np.ndarray, ends: np.ndarray) -> None:
    for i in range(len(values)):
        ends[i], values[i] = read_number(base + starts[i])


@given(st.lists(numbers, min_size=1, max_size=20))
@example(["9007199254740993", "9007199254740993.0", "1e22", "1e23", "-0.0", "0e999", "123456789012345678901"])
@example(
    ["0." + "0" * 47 + "1234567890123456789", "5e-324", "1.7976931348623157e308", "2.2250738585072011e-308"]
)
@example(["8.41e21", "9.5367431640625e-7", "4503599627370496.5", "4503599627370497.5", "9007199254740995e2"])
@example(["99999999999999999999", "18446744073709551616", "-9.9999999999999999999", "0.99999999999999999999"])
@example(["9481628238254653e-22", "14750184984829265e-3", "29670883865020915e2", "11407153108865203e22"])
@example(["3847351361631480e23", "5535219010536896e-23", "12345e-23", "7e23"])
def test_numbers_are_read_as_the_nearest_double_or_declined(texts: list[str]) -> None:
    block, starts = as_block([text.encode() for text in texts])
    lines = Lines(block, starts)
    padded = np.concatenate([block, np.zeros(64, np.uint8)])
    values, ends = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
    numbers_at(padded.ctypes.data, lines.starts, values, ends)
    for i, text in enumerate(texts):
        if ends[i]:
            assert ends[i] - padded.ctypes.data == starts[i] + len(text)
            assert (values[i], math.copysign(1, values[i])) == (float(text), math.copysign(1, float(text)))
        else:
            digits = text.lower().lstrip("-").partition("e")[0].replace(".", "").lstrip("0")
            assert len(digits) > 19 or not 1e-300 < abs(float(text)) < 1e300
