"""Raw files of a source: what validate can tell of them, what was lost on the way to a version, and the root of sources."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import UsageError

QUIET: dict[str, Any] = {"progress": False, "scheduler": "synchronous"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A root with raw files of all sorts: numbers as ids, ids inside of objects, none, a text, and what is no data."""
    raw = tmp_path / "sources/wiki/raw"
    (raw / "x").mkdir(parents=True)
    rows = [{"id": number, "body": f"text {number}", "meta": {"key": f"k{number}"}} for number in range(5)]
    (raw / "x/a.jsonl.gz").write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    )
    (raw / "b.jsonl").write_text('{"id":"7","body":"x"}\n{"body":"no id","id":null}\n')
    (raw / "notes.txt").write_text("a text")
    (raw / "raw_to_ai2_format.py").write_text("pass")
    return tmp_path


def convert(lake: Path, **options: Any) -> Path:
    raw, to = lake / "sources/wiki/raw", lake / "sources/wiki/v0"
    dk.convert(str(raw), to=str(to), source="wiki", text="body", skip=["*.py"], **QUIET, **options)
    return to


def places(summary: Any) -> dict[str, list[tuple[str, int]]]:
    return {kind: [(one.file, one.row) for one in found.first] for kind, found in summary.found.items()}


def test_raw_files_are_checked(lake: Path) -> None:
    summary = dk.validate(str(lake), source="wiki", version="raw", **QUIET)
    assert (summary.exit_status, summary.counts["documents_in"], summary.found) == (0, 8, {})
    notes = " ".join(summary.notes)
    assert "body 87.5 %" in notes
    assert "raw_to_ai2_format.py" in notes
    assert not (lake / "sources/wiki/raw/_journal").exists()  # it is not ours to write to
    with (lake / "sources/wiki/raw/b.jsonl").open("a") as file:
        file.write("[1]\n")
    cut = (lake / "sources/wiki/raw/x/a.jsonl.gz").read_bytes()[:-9]
    (lake / "sources/wiki/raw/x/a.jsonl.gz").write_bytes(cut)
    report = lake / "report.json"
    summary = dk.validate(str(lake / "sources/wiki/raw"), to=str(report), **QUIET)
    assert places(summary) == {
        "unreadable_file": [("raw/x/a.jsonl.gz", -1)],
        "bad_record": [("raw/b.jsonl", 2)],
    }
    assert summary.exit_status == 1
    assert json.loads(report.read_text())["valid"] is False
    with pytest.raises(UsageError, match="no file that can be looked at"):
        dk.validate(str(lake / "sources/wiki/raw"), only=["nothing"], **QUIET)
    part = dk.validate(str(lake / "sources/wiki/raw"), only=["notes"], **QUIET)
    assert part.exit_status == 0
    assert "NOTHING is known" in " ".join(part.notes)


def test_what_was_lost_on_the_way(lake: Path) -> None:
    to = convert(lake)
    call = {"source": "wiki", "version": "v0", "against": "raw", **QUIET}
    assert dk.validate(str(lake), **call).found == {}
    path = to / "documents/x/a.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    changed = [lines[0], *lines[2:4], lines[4].replace(b'"id":"4"', b'"id":"44"')]
    path.write_bytes(gzip.compress(b"".join(changed)))
    summary = dk.validate(str(lake), **call)
    found = {kind: item for kind, item in summary.found.items() if kind != "journal_mismatch"}
    assert {kind: [(one.file, one.row, one.found) for one in item.first] for kind, item in found.items()} == {
        "not_in_against": [("documents/x/a.jsonl.gz", 3, "the id '44'")],
        "lost_record": [
            ("raw/x/a.jsonl.gz", 1, "the id '1'"),
            ("raw/x/a.jsonl.gz", 4, "the id '4'"),
        ],
    }
    assert summary.exit_status == 1
    assert found["not_in_against"].first[0].expected == "a raw record of that id"
    one = dk.validate(str(to), against=str(lake / "sources/wiki/raw"), problems=1, **QUIET)
    assert (one.found["lost_record"].count, len(one.found["lost_record"].first)) == (2, 1)


def test_ids_in_other_fields(lake: Path) -> None:
    convert(lake, id="meta.key", on_bad_record="quarantine", max_bad_fraction=0.5)
    call = {"source": "wiki", "version": "v0", "against": "raw", **QUIET}
    summary = dk.validate(str(lake), raw_id="meta.key", **call)
    assert places(summary)["lost_record"] == [("raw/b.jsonl", 0), ("raw/b.jsonl", 1)]  # have no such field
    assert "not_in_against" not in summary.found
    assert "--raw-id" not in " ".join(summary.notes)
    (lake / "sources/wiki/raw/notes.txt").unlink()  # has the id of its file
    unnamed = dk.validate(str(lake), raw_id="body", **call)
    assert "that of the field body; if another field holds it" in unnamed.notes[-1]
    assert "--raw-id FIELD. They have body, " in unnamed.notes[-1]


def test_records_without_an_id_of_their_own(lake: Path) -> None:
    """They are known by file and row, as convert makes ids; what cannot be read has none, and is no copy and not lost."""
    to = convert(lake)
    with (lake / "sources/wiki/raw/b.jsonl").open("a") as file:
        file.write('{"id":1.5,"body":"x"}\n[1]\n[2]\n{"id":"7"}\n')
    summary = dk.validate(str(to), against=str(lake / "sources/wiki/raw"), **QUIET)
    assert [(one.row, one.found) for one in summary.found["lost_record"].first] == [
        (2, "the id 'b-00000002'")
    ]
    assert summary.found["bad_record"].count == 2
    notes = dk.validate(str(lake / "sources/wiki/raw"), **QUIET).notes
    assert any(note.startswith("1 record with the id of an earlier one") for note in notes)


def test_raw_is_compared_with_nothing(lake: Path) -> None:
    convert(lake)
    with pytest.raises(UsageError, match="raw files"):
        dk.validate(str(lake), source="wiki", version="raw", against="v0", **QUIET)


def test_a_root_in_the_environment(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    convert(lake)
    words = ["validate", "--source", "wiki", "--version", "v0", "--no-progress"]
    monkeypatch.delenv("DOLMA_DASK_ROOT", raising=False)
    assert cli.main(words) == 2
    assert "DOLMA_DASK_ROOT" in capsys.readouterr().err
    with pytest.raises(UsageError, match="DOLMA_DASK_ROOT"):
        dk.open_dataset(source="wiki", version="v0")
    monkeypatch.setenv("DOLMA_DASK_ROOT", str(lake))
    assert cli.main(words) == 0
    assert cli.main(["status", "--version=v0", "--source=wiki"]) == 0
    assert cli.main(["validate", "--source", "wiki"]) == 2  # a version alone makes the root be meant
    assert len(dk.open_dataset(source="wiki", version="v0").shards) == 3


def test_versions(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = convert(lake)
    dk.tag(str(to), taggers=["char_length_v1"], **QUIET)
    (lake / "sources/books/v1/documents").mkdir(parents=True)
    (lake / "sources/books/v1/documents/a.jsonl").write_text('{"id":"1","text":"t","source":"s"}\n')
    (lake / "sources/books/v2/documents").mkdir(parents=True)
    (lake / "sources/books/scripts").mkdir()
    found = dk.versions(str(lake))
    rows = {(row.source, row.version): (row.files, row.documents, row.attributes) for row in found.rows}
    assert rows == {
        ("books", "v1"): (1, None, ()),
        ("books", "v2"): (0, 0, ()),
        ("wiki", "raw"): (4, None, ()),
        ("wiki", "v0"): (3, 8, ("char_length_v1",)),
    }
    assert found.sources == ("books", "wiki")
    assert found.open("wiki", "v0").attributes == ("char_length_v1",)
    assert "1 version whose documents no journal counts" in str(found)
    dk.validate(str(lake / "sources/books/v1"), **QUIET)
    monkeypatch.setenv("DOLMA_DASK_ROOT", str(lake / "sources"))
    assert dk.versions().rows[0].documents == 1
    with pytest.raises(UsageError, match="no version"):
        dk.versions(str(to))


def test_blocklists_by_source_and_id(lake: Path) -> None:
    """A pair blocks the document of that source alone, in a list by text and by columns."""
    to = convert(lake)
    rows = [{"source": "wiki", "id": "1"}, {"source": "books", "id": "2"}]
    lists = {
        "a.txt": "wiki\t1\nbooks\t2\n",
        "b.csv": "source,id\nwiki,1\nbooks,2\n",
        "c.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    for name, text in lists.items():
        (lake / name).write_text(text)
        assert dk.block(str(to), str(lake / name), **QUIET).counts["listed"] == 1


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def test_a_damaged_file_is_one_problem_of_the_comparison(lake: Path) -> None:
    """Neither a raw file nor a document file that ends in its middle costs the report, also where ids are looked up."""
    to = convert(lake)
    call = {"against": str(lake / "sources/wiki/raw"), **QUIET}
    rows = [{"id": number, "body": "x" * 4_000} for number in range(10, 3_000)]
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (lake / "sources/wiki/raw/c.jsonl.gz").write_bytes(packed[:-9])
    summary = dk.validate(str(to), **call)
    assert places(summary)["unreadable_file"] == [("raw/c.jsonl.gz", -1)]
    assert [one.found for one in summary.found["lost_record"].first[:2]] == ["the id '10'", "the id '11'"]
    assert summary.exit_status == 1
    assert "among the raw records" in " ".join(summary.notes)
    damaged(lake / "sources/wiki/raw/x/a.jsonl.gz")
    assert "not_in_against" not in dk.validate(str(to), **call).found  # of what is behind the damage
    damaged(to / "documents/x/a.jsonl.gz")
    summary = dk.validate(str(to), **call)
    assert "lost_record" not in summary.found
    assert "among the documents" in " ".join(summary.notes)
    assert [file for file, _ in places(summary)["unreadable_file"]] == [
        "documents/x/a.jsonl.gz",
        "raw/c.jsonl.gz",
        "raw/x/a.jsonl.gz",
    ]


def test_raw_files_none_of_which_is_known(lake: Path) -> None:
    to = convert(lake)
    for path in ("x/a.jsonl.gz", "b.jsonl", "notes.txt"):
        (lake / "sources/wiki/raw" / path).unlink()
    summary = dk.validate(str(to), against=str(lake / "sources/wiki/raw"), **QUIET)
    assert {kind: item.count for kind, item in summary.found.items()} == {"not_in_against": 8}


def test_a_part_of_the_documents_tells_of_no_lost_records(lake: Path) -> None:
    to = convert(lake)
    call = {"against": str(lake / "sources/wiki/raw"), **QUIET}
    for part in ({"only": ["x/"]}, {"share": "1/3"}, {"prune": 1}, {"sample": 0.3}):
        summary = dk.validate(str(to), **part, **call)
        assert summary.found == {}
        assert "NOT looked for" in " ".join(summary.notes)
    assert "NOT looked for" not in " ".join(dk.validate(str(to), **call).notes)


def test_shares_and_rehearsals_of_raw_files(lake: Path) -> None:
    raw = str(lake / "sources/wiki/raw")
    parts = [dk.validate(raw, share=f"{number}/3", **QUIET) for number in (1, 2, 3)]
    assert [part.scope["files"] for part in parts] == [1, 1, 1]
    assert sum(part.counts["documents_in"] for part in parts) == 8
    report = lake / "report.json"
    rehearsal = dk.validate(raw, dry_run=True, to=str(report), **QUIET)
    assert rehearsal.planned == ("b.jsonl", "notes.txt", "x/a.jsonl.gz")
    assert (rehearsal.done, rehearsal.counts, report.exists()) == (0, {}, False)
