"""schema: what it says of each field is what a loop says, and what the readers of columns find."""

import json
from pathlib import Path

import pytest

import dolma_dask as dk
from dolma_dask.questions import schema as schema_module

ROWS = [
    {
        "id": str(i),
        "text": "x" * 100,
        "source": "s",
        "url": "u",
        "metadata": {
            "n": i,
            "mixed": i if i % 2 else f"v{i}",
            "late": "here" if i == 7 else None,
            "page": {"ok": True},
            "tags": [],
        },
    }
    for i in range(8)
] + [{"id": "8", "text": "", "source": "s"}, {"id": "9", "text": "", "source": "s", "metadata": None}]


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "v0/documents").mkdir(parents=True)
    for name, rows in (("a", ROWS[:3]), ("b", ROWS[3:])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"v0/documents/{name}.jsonl").write_text(lines)
    return str(tmp_path / "v0")


def test_fields_are_counted_and_can_be_asked_for(root: str) -> None:
    found = dk.schema(root, progress=False)
    assert (found.documents, found.bad_records, found.notes) == (
        10,
        0,
        (":str behind the name of a field reads values of any kind as text",),
    )
    rows = {row.name: row for row in found.fields}
    assert {
        name: (dict(row.kinds), row.null_share, row.absent_share, row.example, row.column)
        for name, row in rows.items()
        if name not in ("id", "source")
    } == {
        "text": ({"text": 10}, 0, 0, f'"{"x" * 55} ...', "text"),
        "url": ({"text": 8}, 0, 0.2, '"u"', ""),
        "metadata": (
            {"object": 8},
            0.1,
            0.1,
            '{"n": 0, "mixed": "v0", "late": null, "page": {"ok": tru ...'[:56] + " ...",
            "metadata",
        ),
        "metadata.n": ({"number": 8}, 0, 0.2, "0", "metadata.n"),
        "metadata.mixed": ({"text": 4, "number": 4}, 0, 0.2, '"v0"', "metadata.mixed:str"),
        "metadata.late": ({"text": 1}, 0.7, 0.2, '"here"', "metadata.late"),
        "metadata.page": ({"object": 8}, 0, 0.2, '{"ok": true}', "metadata.page:str"),
        "metadata.page.ok": ({"bool": 8}, 0, 0.2, "true", "metadata.page.ok"),
        "metadata.tags": ({"list": 8}, 0, 0.2, "[]", "metadata.tags:str"),
    }
    columns = [row.column for row in found.fields if row.column]
    frame = dk.read_dataframe(root, columns).compute(scheduler="synchronous")
    for row in found.fields:
        if row.column:
            assert frame[row.column].notna().sum() == sum(row.kinds.values()), row.name
    assert "number 50.0 %, text 50.0 %" in str(found)


def test_bad_records_and_names_without_end_are_told(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(root, "documents/b.jsonl").open("a") as file:
        file.write("no json\n")
    monkeypatch.setattr(schema_module, "MAX_FIELDS", 4)
    found = dk.schema(root, progress=False, scheduler="synchronous")
    assert (found.documents, found.bad_records, len(found.fields)) == (10, 1, 4)
    assert "there are more fields: the first 4 are counted" in found.notes
