"""Tables in text, mail and web pages as documents; files of no known kind, markers, and files left out by name."""

import base64
import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io.files import FileInfo
from dolma_dask.sources.naming import patterns_of, sorted_out

pytest.importorskip("resiliparse")

MESSAGE = """Message-ID: <1@x.org>
From: =?utf-8?q?Bj=C3=B6rn?= <b@x.org>
Subject: Hello
 there
Date: Mon, 1 Jan 2024 12:00:00 +0100

body
From here
"""
OF_MESSAGE = {
    "id": "1@x.org",
    "text": "body\nFrom here\n",
    "created": "2024-01-01T12:00:00+01:00",
    "metadata": {
        "from": "Björn <b@x.org>",
        "date": "Mon, 1 Jan 2024 12:00:00 +0100",
        "subject": "Hello there",
    },
}
BOX = f"From b Mon Jan  1 12:00:00 2024\n{MESSAGE}\nFrom b Mon Jan  1 12:00:01 2024\n{MESSAGE.replace('1@', '2@')}\n"
PAGE = '<html><head><meta charset="iso-8859-1"><title>T</title></head><body><nav>menu</nav><p>One twö</p></body></html>'

KINDS: dict[str, tuple[bytes, list[dict[str, Any]]]] = {
    "a.csv": (
        b'id,text,n\n7,"two\n""lines""",007\n,x,\n',
        [
            {"id": "7", "text": 'two\n"lines"', "metadata": {"n": "007"}},
            {"id": "a-00000001", "text": "x", "metadata": {"n": ""}},
        ],
    ),
    "a.tsv": (b"text\tlang\nt\ten\n", [{"id": "a-00000000", "text": "t", "metadata": {"lang": "en"}}]),
    "a.mbox": (
        BOX.replace("\nFrom here", "\n>From here").encode(),
        [OF_MESSAGE, OF_MESSAGE | {"id": "2@x.org"}],
    ),
    "box/cur/17.M1.host:2,S": (
        MESSAGE.encode(),
        [OF_MESSAGE | {"metadata": OF_MESSAGE["metadata"] | {"path": "box/cur/17.M1.host:2,S"}}],
    ),
    "a.eml": (
        MESSAGE.replace("\n\n", "\nContent-Type: text/html\n\n<p>").encode(),
        [OF_MESSAGE | {"text": "body From here", "metadata": OF_MESSAGE["metadata"] | {"path": "a.eml"}}],
    ),
    "a.html": (
        PAGE.encode("latin-1"),
        [
            {
                "id": "a.html",
                "text": "One twö",
                "metadata": {"path": "a.html", "title": "T", "encoding": "cp1252"},
            }
        ],
    ),
    "b.html": (  # letters that the encoding of that name lacks, and browsers do not
        PAGE.replace("iso-8859-1", "GB2312").replace("twö", "朱镕基").encode("gb18030"),
        [
            {
                "id": "b.html",
                "text": "One 朱镕基",
                "metadata": {"path": "b.html", "title": "T", "encoding": "gb18030"},
            }
        ],
    ),
}


def written(folder: Path, contents: dict[str, bytes]) -> str:
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(folder)


def convert(raw: str, root: Path, **options: Any) -> Any:
    return dk.convert(raw, to=str(root), source="s", progress=False, **options)


def documents(root: Path) -> list[dict[str, Any]]:
    rows = [
        json.loads(row)
        for path in sorted((root / "documents").iterdir())
        for row in gzip.decompress(path.read_bytes()).splitlines()
    ]
    return [{name: value for name, value in row.items() if name != "source"} for row in rows]


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_becomes_documents(tmp_path, name):
    data, expected = KINDS[name]
    convert(written(tmp_path / "raw", {name: data}), tmp_path / "v0")
    assert documents(tmp_path / "v0") == expected


def test_an_archive_holds_all_kinds(tmp_path):
    written(tmp_path / "in", {name: data for name, (data, _) in KINDS.items()})
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in KINDS:
            archive.add(tmp_path / "in" / name, name)
    convert(str(tmp_path / "a.tar"), tmp_path / "v0")
    made = documents(tmp_path / "v0")
    assert [row["text"] for row in made] == [row["text"] for _, rows in KINDS.values() for row in rows]


def test_members_of_archives_are_skipped_by_name(tmp_path):
    written(tmp_path / "in", {"a.txt": b"t", "README": b"x", "_SUCCESS": b""})
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("a.txt", "README", "_SUCCESS"):
            archive.add(tmp_path / "in" / name, name)
    with pytest.raises(StageError, match="--skip NAME"):
        convert(str(tmp_path / "a.tar"), tmp_path / "v0")
    summary = convert(str(tmp_path / "a.tar"), tmp_path / "v0", skip=["README"])
    assert [row["text"] for row in documents(tmp_path / "v0")] == ["t"]
    assert "README (skipped by name)" in summary.notes[-1]
    assert "_SUCCESS (marker)" in summary.notes[-1]


def test_empty_lines_before_the_heading_are_no_rows(tmp_path):
    raw = written(tmp_path / "raw", {"a.csv": b"\n\r\nid,text\n1,a\n\n2,b,c\n3,d\n"})
    convert(raw, tmp_path / "v0", on_bad_record="quarantine", max_bad_fraction=0.5)
    assert [row["id"] for row in documents(tmp_path / "v0")] == ["1", "3"]
    kept = json.loads((tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text())
    assert (kept["row"], base64.b64decode(kept["raw_base64"])) == (1, b"2,b,c")


def test_a_message_of_nonsense_costs_itself_at_most(tmp_path):
    """What spammers write: half of a surrogate pair in UTF-7, years and time zones without end, parts in parts in parts."""
    head = "From b Mon Jan  1 12:00:00 2024\nMessage-ID: <{}>\n"
    nested = "".join(f'Content-Type: multipart/mixed; boundary="{n}"\n\n--{n}\n' for n in range(3000))
    tails = [
        "Content-Type: text/plain; charset=utf-7\n\n+2AA-\n",
        "Subject: =?utf-7?q?+2AA-?=\n\nb\n",
        "Content-Disposition: attachment; filename*=utf-7''%2B2AA-\n\nc\n",
        "Date: Mon, 1 Jan 99999999999999999999 00:00:00\n\nd\n",
        "Date: Mon, 1 Jan 2024 00:00:00 +99999999999999999\n\ne\n",
        nested + "f\n",
        "\nlast\n",
    ]
    box = "\n".join(head.format(number) + tail for number, tail in enumerate(tails))
    raw = written(tmp_path / "raw", {"a.mbox": box.encode()})
    convert(raw, tmp_path / "v0", on_bad_record="quarantine", max_bad_fraction=0.5)
    made = {row["id"]: row for row in documents(tmp_path / "v0")}
    texts = {"0": "+2AA-\n", "1": "b\n", "2": "", "3": "d\n", "4": "e\n", "6": "last\n"}
    assert {name: row["text"] for name, row in made.items()} == texts
    assert made["1"]["metadata"]["subject"] == "=?utf-7?q?+2AA-?="
    assert made["2"]["metadata"]["attachments"] == ["?"]
    assert not any("created" in row for row in made.values())
    kept = json.loads((tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text())
    assert (kept["row"], kept["reason"]) == (5, "damaged_record")


@pytest.mark.parametrize("bad, where", [(b"3\n", 1), (b"3,b,c\n", 1), (b'3,"b,c\n4,",e"\n', 1)])
def test_a_row_with_other_cells_is_a_bad_record(tmp_path, bad, where):
    raw = written(tmp_path / "raw", {"a.csv": b"id,text\n1,a\n" + bad + b"5,ok\n"})
    summary = convert(raw, tmp_path / "v0", on_bad_record="quarantine", max_bad_fraction=0.5)
    assert summary.counts["documents_in"] == 3
    kept = json.loads((tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text())
    assert (kept["row"], kept["expected"][:25]) == (where, "2 cells as in the heading")
    assert (kept["byte_offset"], base64.b64decode(kept["raw_base64"])) == (-1, bad.rstrip())
    assert ("never closed" in kept["expected"]) == (b'"' in bad)
    assert [row["id"] for row in documents(tmp_path / "v0")] == ["1", "5"]


def test_rows_that_a_quote_swallows_are_not_lost_in_silence(tmp_path):
    """The number of cells is right: only the text behind the quote that closes the cell tells."""
    swallowed = b'2,"b\n3,c\n4,"d\n'
    raw = written(
        tmp_path / "raw", {"a.csv": b'id,text\n\n1,"a ""\nb"\n' + swallowed + b'5,"ok" so\n6,5" disk\n'}
    )
    with pytest.raises(StageError, match="found one of 3 lines and text behind it; a quote before it"):
        convert(raw, tmp_path / "v0")
    summary = convert(raw, tmp_path / "v0", on_bad_record="quarantine", max_bad_fraction=0.5)
    assert summary.counts["documents_in"] == 4
    kept = json.loads((tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").read_text())
    assert (kept["row"], base64.b64decode(kept["raw_base64"])) == (1, b'2,"b\n3,c\n4,d"\r\n')
    assert [row["text"] for row in documents(tmp_path / "v0")] == ['a "\nb', "ok so", '5" disk']


def test_a_row_of_a_table_without_a_document_has_no_place_in_bytes(tmp_path):
    raw = written(tmp_path / "raw", {"a.csv": b"id,text\n1,a\n2,b\n"})
    pq.write_table(pa.table({"text": pa.array(["a", None])}), tmp_path / "raw/b.parquet")
    (tmp_path / "f.py").write_text("def f(record):\n    return {'text': record['text'] + 0}\n")
    convert(
        raw, tmp_path / "v0", function=f"{tmp_path}/f.py:f", on_bad_record="quarantine", max_bad_fraction=1
    )
    for name in ("a", "b"):
        lines = (tmp_path / f"v0/_quarantine/convert/{name}.jsonl.gz.jsonl").read_text().splitlines()
        assert [(line["row"], line["byte_offset"]) for line in map(json.loads, lines)] == [(0, -1), (1, -1)]


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("a.csv", b"id,body\n1,a\n", r"no column 'text'; it has the columns id, body\. .*--text body"),
        ("a.csv", b"text,text\n1,a\n", "two columns 'text'"),
        ("a.csv", b'text\n"a\nb\n', "quote that is never closed"),
        ("a.csv", b"", "an empty file"),
        ("a.csv", "text\na\n".encode("utf-16"), "mark of UTF-16: convert it with --encoding utf-16"),
        ("a.csv", b"text\ncaf\xe9\n", "convert it with --encoding NAME"),
        ("a.csv", b"text,caf\xe9\na,b\n", "the heading is not UTF8.*--encoding NAME"),
        ("a.csv", b'"text' + b"x" * 200_000 + b"\na\n", "no heading can be read .*Is it a table?"),
        ("a.mbox", b"no mail\n", "expected a mailbox"),
        ("a.jsonl", b'{"text":"a","x":NaN}\n', "NaN, which JSON has not, at byte 16"),
        ("a.jsonl", b'{"text":"a","x":-Infinity}\n', "-Infinity, which JSON has not, at byte 16"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, data, message):
    with pytest.raises(StageError, match=message):
        convert(written(tmp_path / "raw", {name: data}), tmp_path / "v0")


def test_odd_files_fail_after_the_others_are_done_until_they_are_skipped(tmp_path):
    raw = written(
        tmp_path / "raw", {"README": b"x", "x/a.pdf": b"", "x/b.pdf": b"", "_SUCCESS": b"", "a.txt": b"t"}
    )
    with pytest.raises(StageError, match=r"3 files of no kind .* --skip README '\*\.pdf'") as caught:
        convert(raw, tmp_path / "v0")
    assert (caught.value.details["summary"].done, caught.value.details["summary"].exit_status) == (1, 1)
    again = convert(raw, tmp_path / "v0", skip=["README", "*.pdf"])
    assert (again.skipped, again.exit_status) == (1, 0)
    assert any("1 marker left out, such as _SUCCESS" in note for note in again.notes)
    with pytest.raises(UsageError, match="no file with documents: 2 files of no kind"):
        convert(f"{raw}/x", tmp_path / "v1")


def test_files_are_skipped_by_name_folder_or_pattern():
    infos = [
        FileInfo(name, 1, "") for name in ("README", "docs/a.txt", "docs/b/c.txt", "x/README", "d.jsonl")
    ]

    def left(*skip: str) -> list[str]:
        return [info.path for info in sorted_out(infos, skip).known]

    assert left() == ["docs/a.txt", "docs/b/c.txt", "d.jsonl"]
    assert left("docs") == left("docs/") == ["d.jsonl"]
    assert left("b") == ["docs/a.txt", "d.jsonl"]
    assert left("*.txt") == left("docs/*") == ["d.jsonl"]
    assert not sorted_out(infos, ["README"]).odd


def test_proposed_patterns_leave_out_no_file_of_a_known_kind():
    odd = ["README", "a.pdf", "b.pdf", "x.tar.gz", "x.parquet.gz"]
    known = ["a.jsonl.gz", "x.parquet", "x.tar", "y.txt.GZ", "pdf.txt"]
    listing = sorted_out([FileInfo(name, 1, "") for name in (*odd, *known)], ())
    left = sorted_out([*listing.odd, *listing.known], patterns_of(listing.odd))
    assert [info.path for info in left.known] == known
    assert not left.odd
