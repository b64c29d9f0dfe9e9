"""Columns by name: only what is asked is read, and still nothing that does not belong together passes."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    ExpressionError,
    SchemaError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.io import documents as documents_module
from dolma_dask.reading import columns as columns_module
from dolma_dask.reading.columns import find_columns

WORDS = "gopher_v2__gopher_v2__word_count"
LENGTH = "char_length_v1__char_length_v1__length"


def write(root: Path, rows: list[dict], shard: str = "a.jsonl") -> None:
    path = root / "documents" / shard
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows_of(count: int, text: str = "some words here") -> list[dict]:
    return [
        {
            "id": f"d{i}",
            "source": "web" if i % 2 else "books",
            "text": f"{text} {'x ' * i}",
            "metadata": {"lang": "en" if i % 3 else "fr", "score": i / 2, "ok": i > 2, "tags": [i]},
        }
        for i in range(count)
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "v0"
    write(root, rows_of(10))
    write(root, rows_of(5), "b/c.jsonl")
    dk.tag(str(root), ["gopher_v2", "char_length_v1"], scheduler="synchronous", progress=False)
    return root


@pytest.fixture
def parsed(monkeypatch) -> list[tuple[str, ...]]:
    """Record the document columns that are parsed, a tuple per file read."""
    seen = []
    whole = documents_module.DocumentFile.__iter__

    def counted(self):
        seen.append(self.columns)
        return whole(self)

    monkeypatch.setattr(documents_module.DocumentFile, "__iter__", counted)
    return seen


def read(root: Path, names: list[str], attributes: tuple[str, ...] = (), **options) -> dict[str, list]:
    columns = find_columns(dk.open_dataset(str(root), **options), names, attributes)
    found: dict[str, list] = {name: [] for name in columns.names}
    for shard in columns.dataset.shards:
        for block in columns.work(shard).open():
            batch = block.batch
            assert batch.schema.names == list(columns.names)
            for name in columns.names:
                found[name] += batch.column(name).to_pylist()
    return found


def test_columns_of_all_kinds_line_up(root):
    found = read(
        root, ["id", "word_count", "metadata.lang", "metadata.score", "metadata.ok", LENGTH, "source"]
    )
    expected = [*rows_of(10), *rows_of(5)]
    assert found["id"] == [row["id"] for row in expected]
    assert found[WORDS] == [float(len(row["text"].split())) for row in expected]
    assert found[LENGTH] == [float(len(row["text"])) for row in expected]
    assert found["metadata.lang"] == [row["metadata"]["lang"] for row in expected]
    assert found["metadata.score"] == [row["metadata"]["score"] for row in expected]
    assert found["metadata.ok"] == [row["metadata"]["ok"] for row in expected]


def test_attributes_that_the_journal_proves_leave_documents_closed(root, parsed):
    assert len(read(root, ["word_count", LENGTH])[WORDS]) == 15
    assert parsed == []


@pytest.mark.parametrize("names", [["word_count"], ["word_count", "metadata.lang"], ["id", "word_count"]])
def test_identities_come_first_from_the_attributes_unless_documents_are_read(root, parsed, names):
    columns = find_columns(dk.open_dataset(str(root)), names)
    blocks = [
        block.batch
        for shard in columns.dataset.shards
        for block in replace(columns.work(shard), identities=True).open()
    ]
    known = [name for name in columns.names if name != "id"]
    assert all(batch.schema.names == ["id", "source", *known] for batch in blocks)
    expected = [*rows_of(10), *rows_of(5)]
    for name in ("id", "source"):
        found = [value for batch in blocks for value in batch.column(name).to_pylist()]
        assert found == [row[name] for row in expected]
    assert bool(parsed) == (len(names) > 1)


def test_only_the_asked_columns_are_parsed(root, parsed):
    read(root, ["id", "word_count"])
    assert parsed == [("id",), ("id",)]


def test_documents_with_other_ids_are_found_though_no_id_is_asked(root):
    rows = rows_of(10)
    write(root, [rows[1], rows[0], *rows[2:]])
    with pytest.raises(AlignmentError, match="first difference at row 0"):
        read(root, ["word_count"])


def edit(root: Path, change) -> None:
    path = root / "attributes/gopher_v2/a.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def test_attributes_that_were_edited_are_not_read(root):
    edit(root, lambda lines: [line.replace("4.0]", "5.0]") for line in lines])
    with pytest.raises(StaleAttributesError, match="not the file that `tag` wrote"):
        read(root, ["word_count"])


def test_digests_are_known_where_their_columns_were_read(root):
    columns = find_columns(dk.open_dataset(str(root)), ["id", "source", "text"])
    reader = columns.work(columns.dataset.shards[0]).open(is_digested=True)
    assert sum(block.num_rows for block in reader) == 10
    assert reader.state.ids_digest
    assert reader.state.content_digest
    assert [item.path for item in reader.state.inputs] == ["documents/a.jsonl"]


@pytest.mark.parametrize(
    "names, error, message",
    [
        (["word_cuont"], ExpressionError, "near it are"),
        (["metadata.lnag"], ExpressionError, "metadata.lang"),
        (
            ["metadata.tags"],
            ExpressionError,
            r"no column.*it is a list or an object; its text is metadata\.tags:str",
        ),
        (["id", "id"], UsageError, "requested twice"),
        (["word_count", WORDS], UsageError, "requested twice"),
    ],
)
def test_wrong_names(root, names, error, message):
    with pytest.raises(error, match=message):
        read(root, names)


def test_a_set_without_documents_is_named_where_a_column_is_missing(tmp_path):
    write(tmp_path, [])
    dk.tag(str(tmp_path), ["char_length_v1"], scheduler="synchronous", progress=False)
    with pytest.raises(
        ExpressionError, match=r"no column .*length[^$]*char_length_v1 has no columns: there are no documents"
    ):
        dk.mix(
            str(tmp_path),
            to=str(tmp_path / "v1"),
            where="length > 3",
            scheduler="synchronous",
            progress=False,
        )


def test_a_field_of_another_kind_in_a_later_row_is_an_error(root):
    rows = rows_of(2000)
    rows[1500]["metadata"]["lang"] = 7
    write(root, rows, "d.jsonl")
    with pytest.raises(SchemaError, match=r"d\.jsonl, row 1500"):
        read(root, ["metadata.lang"])


def test_fields_at_any_depth(tmp_path):
    rows = rows_of(40)
    for i, row in enumerate(rows):
        inner = {"hash": f"h{i % 7}", "ok": i % 2 == 0, "er": {"score": i / 4, "x.y": 1, "lang": "de"}}
        row["metadata"] = {"page": [inner, None, {"er": {}}][min(i % 10, 2) if i % 10 < 3 else 0], "a.b": i}
    write(tmp_path, rows)
    columns = {
        "metadata.page.hash": "string",
        "metadata.page.ok": "bool",
        "metadata.page.er.score": "number",
        "metadata.page.er.lang": "string",
        "metadata.a.b": "number",
    }

    def value(row: dict, name: str):
        found = row["metadata"]
        for key in ("a.b",) if name == "metadata.a.b" else name.split(".")[1:]:
            found = (found or {}).get(key)
        return found

    found = find_columns(dk.open_dataset(str(tmp_path)), list(columns))
    assert found.kinds == columns
    assert read(tmp_path, list(columns)) == {name: [value(row, name) for row in rows] for name in columns}
    table = dk.read_dataframe(str(tmp_path), list(columns)).compute(scheduler="synchronous")
    assert [str(kind) for kind in table.dtypes] == ["str", "boolean", "float64", "str", "float64"]
    assert table["metadata.page.hash"].dropna().tolist() == [
        value(row, "metadata.page.hash") for row in rows if value(row, "metadata.page.hash")
    ]
    for name, near in (("metadata.page.hahs", "metadata.page.hash"), ("metadata.page.er.x.y", "no column")):
        with pytest.raises(ExpressionError, match=near):
            read(tmp_path, [name])


@pytest.mark.slow
@pytest.mark.parametrize("page", ["text", 7, [1], {"hash": 7}, {"hash": {}}])
def test_something_else_on_the_way_to_a_field_is_an_error(tmp_path, page):
    rows = rows_of(2000)
    for row in rows:
        row["metadata"] = {"page": {"hash": "h"}}
    rows[1500]["metadata"] = {"page": page}
    write(tmp_path, rows)
    with pytest.raises(SchemaError, match=r"a\.jsonl, row 1500: .* in the metadata as in earlier rows"):
        read(tmp_path, ["metadata.page.hash"])


def test_metadata_that_is_absent_null_or_no_object_has_no_fields(tmp_path):
    rows = rows_of(5)
    rows[1]["metadata"] = None
    del rows[2]["metadata"]
    rows[3]["metadata"] = "text"
    write(tmp_path, rows)
    assert read(tmp_path, ["metadata.score"]) == {"metadata.score": [0.0, None, None, None, 2.0]}


def test_a_field_in_one_shard_of_many(tmp_path):
    """Those that are looked at first do not have it."""
    for number in range(40):
        rows = rows_of(2)
        for row in rows:
            row["metadata"] = {"rare": number} if number == 17 else {"often": number}
        write(tmp_path, rows, f"{number:02d}.jsonl")
    found = find_columns(dk.open_dataset(str(tmp_path)), ["metadata.rare", "metadata.often"])
    assert found.kinds == {"metadata.rare": "number", "metadata.often": "number"}
    with pytest.raises(ExpressionError, match=r"no column.*metadata\.rare"):
        find_columns(dk.open_dataset(str(tmp_path)), ["metadata.rara"])


@pytest.mark.parametrize("count", [1, 5, 8, 9, 15, 40, 300])
def test_fields_are_looked_for_all_over_the_listing_first(count):
    first, *others = columns_module._rounds(range(count))
    assert len(first) == min(count, 8)
    assert first[0] == 0
    assert max(b - a for a, b in pairwise([*first, count])) <= -(-count // 8)
    assert sorted([*first, *(shard for part in others for shard in part)]) == list(range(count))


def test_no_more_shards_are_looked_at_than_a_field_needs(tmp_path, parsed):
    for number in range(30):
        write(tmp_path, rows_of(1), f"{number:02d}.jsonl")
    find_columns(dk.open_dataset(str(tmp_path)), ["metadata.score"])
    assert len(parsed) == 8


def test_a_file_that_hides_a_field_is_named(tmp_path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ExpressionError, match=r"no column .* could not be read: .*a\.parquet: not a whole"):
        find_columns(dk.open_dataset(str(tmp_path)), ["metadata.n"])


def nested_rows(count: int) -> list[dict]:
    """Rows whose metadata have fields that are null in the first thousands, of several kinds, or null in all rows."""
    return [
        {
            "id": f"d{i}",
            "text": "x",
            "source": "s",
            "metadata": {
                "late": f"v{i}" if i >= 3000 else None,
                "mixed": [i, f'a"\u00e9{i}', True, None, [i]][i % 5],
                "page": {"late": i / 2 if i >= 3000 else None} if i % 2 else "a page",
                "never": None,
            },
        }
        for i in range(count)
    ]


def test_fields_that_are_null_in_the_first_rows(tmp_path, monkeypatch):
    rows = nested_rows(3002)
    write(tmp_path, rows)
    for name, value in (("metadata.late", "v3001"), ("metadata.late:str", "v3001")):
        assert read(tmp_path, [name])[name] == [None] * 3000 + ["v3000", value]
    frame = dk.read_dataframe(str(tmp_path), ["metadata.late"]).compute(scheduler="synchronous")
    assert frame["metadata.late"].tolist()[-2:] == ["v3000", "v3001"]
    bag = dk.read_bag(str(tmp_path), ["metadata.late"]).compute(scheduler="synchronous")
    assert [row["metadata.late"] for row in bag[-3:]] == [None, "v3000", "v3001"]
    kept = dk.mix(str(tmp_path), where="metadata.late == 'v3001'", to=str(tmp_path / "v1"), progress=False)
    assert kept.counts["documents_out"] == 1
    for name in ("metadata.never", "metadata.never:str", "metadata.lat", "metadata.lat:str"):
        with pytest.raises(ExpressionError, match="null or absent in all rows"):
            read(tmp_path, [name])
    monkeypatch.setattr(columns_module, "SEARCHED_BYTES", 1)
    write(tmp_path, nested_rows(1), "b.jsonl")
    write(tmp_path, [row | {"id": "x" + row["id"]} for row in rows], "c.jsonl")
    assert read(tmp_path, ["metadata.unseen:str"]) == {"metadata.unseen:str": [None] * 6005}
    with pytest.raises(ExpressionError, match="in all rows of 1 shard and the first of the others"):
        read(tmp_path, ["metadata.unseen"])


def test_fields_of_any_kind_as_text(tmp_path):
    rows = nested_rows(3010)
    write(tmp_path, rows)

    def text(value: object) -> str | None:
        return value if isinstance(value, str) or value is None else json.dumps(value)

    names = ["metadata.mixed:str", "metadata.page:str", "metadata.page.late:str"]
    found = read(tmp_path, names)
    assert found[names[0]] == [text(row["metadata"]["mixed"]) for row in rows]
    assert found[names[1]] == [text(row["metadata"]["page"]) for row in rows]
    assert found[names[2]][-2:] == [None, "1504.5"]
    with pytest.raises(SchemaError, match=r"expected .* Ask for its text, metadata\.mixed:str"):
        read(tmp_path, ["metadata.mixed"])
    rule = "`metadata.mixed:str` == '[4]'"
    assert (
        dk.mix(str(tmp_path), where=rule, to=str(tmp_path / "v1"), progress=False).counts["documents_out"]
        == 1
    )
