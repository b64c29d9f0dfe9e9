"""Records become documents: the rules, against a plain-Python oracle, and byte for byte where nothing was asked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.sources.documents import Document, RecordConverter
from dolma_dask.sources.mapping import FieldMapping

PATH = "en/part-1.jsonl.gz"


def convert(line: bytes, mapping: FieldMapping | None = None, row: int = 7, path: str = PATH) -> Document:
    return RecordConverter(mapping or FieldMapping(), path).convert(parse_object(line), row, line)


class Number(str):
    """A number as it was written."""


def loads(line: bytes) -> Any:
    return json.loads(line, parse_float=Number, parse_int=Number)


# ---- the oracle: the rules of `dolma_dask.sources.mapping`, on parsed values


def lookup(record: Any, path: str) -> Any:
    if not isinstance(record, dict) or isinstance(record, Number):
        return None
    if path in record:
        return record[path]
    first, _, rest = path.partition(".")
    return lookup(record.get(first), rest) if rest else None


def as_text(value: Any) -> str | None:
    if isinstance(value, Number):
        if any(letter in value for letter in ".eE"):
            raise ValueError("wrong_type")
        return "0" if value == "-0" else str(value)
    if value is None or isinstance(value, str):
        return value
    raise ValueError("wrong_type")


def needed(record: dict[str, Any], path: str) -> str:
    value = as_text(lookup(record, path))
    if value is None:
        raise ValueError("any")
    return value


def cut(record: dict[str, Any], path: str) -> None:
    if path in record:
        del record[path]
        return
    first, _, rest = path.partition(".")
    cut(record[first], rest)
    if not record[first]:
        del record[first]


def expected(record: dict[str, Any], mapping: FieldMapping, row: int) -> dict[str, Any]:
    is_document = all(type(record.get(key)) is str for key in ("id", "text", "source")) and record["id"]
    if mapping == FieldMapping() and is_document:
        return record
    document: dict[str, Any] = {}
    if mapping.id:
        document["id"] = needed(record, mapping.id)
    else:
        found = as_text(record.get("id"))
        document["id"] = f"en/part-1-{row:08d}" if found in (None, "") else found
    document["text"] = needed(record, mapping.text)
    if mapping.source or mapping.source_name is None:
        found = as_text(lookup(record, mapping.source or "source"))
        source = mapping.source_name if found is None else found
    else:
        source = mapping.source_name
    if source is None:
        raise ValueError("any")
    document["source"] = source
    rest = dict(record)
    for name in ("added", "created"):
        path = getattr(mapping, name)
        try:
            stamp = as_text(lookup(record, path or name))
        except ValueError:
            if path:
                raise
            continue
        if stamp is not None:
            document[name] = stamp
        if not path:
            rest.pop(name, None)
    cut(rest, mapping.text)
    moved = [mapping.id or "id", mapping.source or "source", mapping.added, mapping.created]
    if mapping.source_name is not None and not mapping.source:
        moved[1] = None
    for path in moved:
        rest.pop(path, None)
    metadata = rest.pop("metadata", None)
    if metadata is not None and (isinstance(metadata, Number) or not isinstance(metadata, dict)):
        rest, metadata = {**rest, "metadata": metadata}, None
    if metadata is None and not rest:
        return document
    members = dict(metadata or {})
    for name, value in rest.items():
        free = name
        while free in (metadata or {}) or (free != name and (free in rest or free in members)):
            free += "_raw"
        members[free] = value
    if mapping.metadata_fields is not None:
        members = {name: value for name, value in members.items() if name in mapping.metadata_fields}
        if not members:
            return document
    document["metadata"] = members
    return document


numbers = st.sampled_from([0, -1, 10**30, 1.5, -0.0, 1e300])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.characters(codec="utf-8")
names = st.sampled_from(
    ["id", "text", "source", "added", "created", "metadata", "url", "url_raw", "url_raw_raw", "meta", "meta.id", "body", "é"]
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
good_records = st.fixed_dictionaries(
    {"text": st.text(max_size=20), "source": st.text(max_size=5)},
    optional={
        "id": st.text(max_size=5) | st.integers() | st.none(),
        "added": scalars,
        "created": values,
        "metadata": values | st.dictionaries(names, values, max_size=4),
        "url": values,
        "url_raw": values,
        "meta": st.dictionaries(names, values, max_size=4)
        | st.dictionaries(names, st.text(max_size=3), min_size=4),
    },
)
mappings = st.builds(
    FieldMapping,
    id=st.sampled_from([None, None, "id", "url", "meta.id", "metadata.id"]),
    text=st.sampled_from(["text", "text", "meta.body", "metadata.text", "meta.meta.body", "url"]),
    source=st.sampled_from([None, None, "source", "meta.source"]),
    added=st.sampled_from([None, None, "url", "meta.added"]),
    created=st.sampled_from([None, None, "created"]),
    source_name=st.sampled_from([None, "web"]),
    metadata_fields=st.sampled_from([None, None, (), ("url", "meta"), ("url_raw",)]),
)


@given(
    good_records | st.dictionaries(names, values, max_size=6),
    mappings | st.just(FieldMapping()),
    st.booleans(),
)
def test_every_record_becomes_what_the_rules_say(
    record: dict[str, Any], mapping: FieldMapping, ascii_only: bool
) -> None:
    line = json.dumps(record, ensure_ascii=ascii_only, separators=(" , ", ": ")).encode() + b"\n"
    try:
        wanted = expected(loads(line), mapping, 7)
    except ValueError as refused:
        reason = str(refused)
    else:
        reason = ""
    if reason:
        with pytest.raises(LineError) as caught:
            convert(line, mapping)
        assert reason in ("any", caught.value.reason)
        return
    found = convert(line, mapping)
    assert loads(found.raw) == wanted
    assert list(loads(found.raw)) == list(wanted)
    assert (found.id, found.text, found.source) == tuple(wanted[key] for key in ("id", "text", "source"))
    assert found.raw.endswith(b"}\n")
    assert found.raw.count(b"\n") == 1


def test_values_keep_their_bytes() -> None:
    line = (
        rb'{"n":1.10,"text":"caf\u00e9 \/ x","big":123456789012345678901234567890,'
        rb'"e":1e400,"deep":{ "a" : [1.0 ,2E5] },"url":"\u0041"}'
    )
    raw = convert(line, FieldMapping(source_name="w")).raw
    assert (
        raw
        == (
            rb'{"id":"en/part-1-00000007","text":"caf\u00e9 \/ x","source":"w","metadata":{"n":1.10,'
            rb'"big":123456789012345678901234567890,"e":1e400,"deep":{ "a" : [1.0 ,2E5] },"url":"\u0041"}}'
        )
        + b"\n"
    )


def test_members_of_an_existing_metadata_object_keep_their_bytes_and_come_first() -> None:
    line = rb'{"id":5,"text":"t","source":"s","metadata":{ "url" : "\u0061", "n":1.0 },"url":"b","k":2}'
    assert convert(line).raw == (
        rb'{"id":"5","text":"t","source":"s","metadata":{ "url" : "\u0061", "n":1.0,"url_raw":"b","k":2}}'
        + b"\n"
    )


@pytest.mark.parametrize(
    "path, line, metadata",
    [
        ("a.b", b'{"a":{"b":"t"},"n":1}', {"n": 1}),
        ("a.b", b'{"a":{"b":"t","c":1.0},"n":1}', {"a": {"c": 1.0}, "n": 1}),
        ("a.b.c", b'{"a":{"b":{"c":"t"},"d":2}}', {"a": {"d": 2}}),
        ("a.b.c", b'{"a":{"b.c":"t","b":{"c":1}}}', {"a": {"b": {"c": 1}}}),
        ("a.b", b'{"a":{"b":1},"a.b":"t"}', {"a": {"b": 1}}),
        ("metadata.body", b'{"metadata":{"body":"t","n":1}}', {"n": 1}),
    ],
)
def test_a_nested_text_is_cut_out_of_its_object(path: str, line: bytes, metadata: dict[str, Any]) -> None:
    found = json.loads(convert(line, FieldMapping(text=path, source_name="s")).raw)
    assert (found["text"], found["metadata"]) == ("t", metadata)


@pytest.mark.parametrize(
    "line",
    [
        b'{"source":"s" , "id":"1","text":"a","extra":1.00,"created":null}\n',
        b' {"id":"\\u0031","text":"","source":"","metadata":7}\r\n',
        b'{"id":"1","text":"a","text":"b","source":"s"}\n',
    ],
)
def test_a_document_passes_byte_for_byte_when_nothing_is_asked(line: bytes) -> None:
    assert convert(line).raw == line
    assert convert(line[:-1]).raw == line


def test_a_document_is_rewritten_when_something_is_asked() -> None:
    line = b'{"id":"1","text":"a","source":"s","extra":1.00}\n'
    assert convert(line, FieldMapping(metadata_fields=())).raw == b'{"id":"1","text":"a","source":"s"}\n'


@pytest.mark.parametrize(
    "line, mapping, reason, words",
    [
        (b'{"id":"1","source":"s"}', FieldMapping(), "missing_field", "'text', which is missing"),
        (b'{"id":"1","source":"s"}', FieldMapping(), "missing_field", "--text FIELD"),
        (b'{"id":"1","body\\n":"a"}', FieldMapping(), "missing_field", r"the record has 'id', 'body\n'"),
        (b"{}", FieldMapping(), "missing_field", "the record has no fields"),
        (b'{"%b":1}' % (b"n" * 99), FieldMapping(), "missing_field", f"'{'n' * 40} ...'"),
        (
            b"{%b}" % b",".join(b'"%d":0' % n for n in range(10)),
            FieldMapping(),
            "missing_field",
            "'7' and 2 more",
        ),
        (b'{"id":"1","text":null,"source":"s"}', FieldMapping(), "wrong_type", "'text', found null"),
        (b'{"id":"1","text":["a"],"source":"s"}', FieldMapping(), "wrong_type", "found an array"),
        (b'{"id":1.5,"text":"a","source":"s"}', FieldMapping(), "wrong_type", "a number that is not whole"),
        (b'{"id":true,"text":"a","source":"s"}', FieldMapping(), "wrong_type", "'id', found a boolean"),
        (b'{"id":{},"text":"a","source":"s"}', FieldMapping(), "wrong_type", "'id', found an object"),
        (b'{"id":"1","text":"a"}', FieldMapping(), "missing_field", "--source NAME"),
        (b'{"text":"a","source":"s"}', FieldMapping(id="url"), "missing_field", "'url'"),
        (b'{"text":"a","source":"s","t":[]}', FieldMapping(created="t"), "wrong_type", "'t'"),
    ],
)
def test_what_is_missing_or_of_another_type_is_refused(
    line: bytes, mapping: FieldMapping, reason: str, words: str
) -> None:
    with pytest.raises(LineError) as caught:
        convert(line, mapping)
    assert caught.value.reason == reason
    assert words in caught.value.expected


@pytest.mark.parametrize(
    "raw, identity", [(b"7", "7"), (b"-7", "-7"), (b"-0", "0"), (b"9" * 5000, "9" * 5000)]
)
def test_an_integer_id_becomes_its_digits(raw: bytes, identity: str) -> None:
    assert convert(b'{"id":%b,"text":"a","source":"s"}' % raw).id == identity


def test_generated_ids_depend_on_file_and_row_alone() -> None:
    line = b'{"text":"a","source":"s"}'
    assert convert(line, row=0).id == "en/part-1-00000000"
    assert convert(line, row=123456789).id == "en/part-1-123456789"
    assert convert(line, FieldMapping(generated_id="{path}/{row}"), row=3).id == f"{PATH}/3"


@pytest.mark.parametrize("source", [b"", b',"source":"s"'])
def test_an_id_without_characters_is_none(source: bytes) -> None:
    line = b'{"id":"","text":"a"%b}' % source
    found = convert(line, FieldMapping(source_name=None if source else "s"), row=5)
    assert (found.id, loads(found.raw)["id"]) == ("en/part-1-00000005",) * 2


@pytest.mark.parametrize(
    "pattern", ["{stem}", "{row:d", "{name}-{row}", "{}", "{row.x}", "{stem[0]}", "{row:>1}{stem"]
)
def test_an_id_pattern_that_cannot_tell_rows_apart_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="its own id"):
        FieldMapping(generated_id=pattern)


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b"])
def test_an_empty_field_name_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="empty part"):
        FieldMapping(id=path)


def test_the_canonical_text_is_equal_exactly_for_equal_mappings() -> None:
    one = FieldMapping(id="url", metadata_fields=("b", "a", "b"))
    assert one == FieldMapping(id="url", metadata_fields=("a", "b"))
    assert one.canonical() == FieldMapping(id="url", metadata_fields=("a", "b")).canonical()
    assert one.canonical() != FieldMapping(id="url", metadata_fields=()).canonical()
    assert FieldMapping(metadata_fields=()).canonical() != FieldMapping().canonical()
    assert json.loads(one.canonical())["metadata_fields"] == ["a", "b"]
