"""A record that is larger than --max-record-bytes, in every kind of file: refused with its place and the memory it would take, or set aside."""

import base64
import csv
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError
from dolma_dask.sources import csv as sources_of_csv
from dolma_dask.testing.archives import response, warc_file

TEXTS = ["short", "long " * 1000, "last"]
LIMIT = 1500
OPTIONS: dict[str, Any] = {"progress": False, "scheduler": "synchronous", "max_record_bytes": LIMIT}
SAID = r"row 1.*: too large; expected at most 1,500 bytes \(max_record_bytes\), found 5,.*for which a worker may need 1\d\d kB"


def json_lines() -> bytes:
    return b"".join(
        json.dumps({"id": f"d{row}", "text": text, "source": "s"}).encode() + b"\n"
        for row, text in enumerate(TEXTS)
    )


def separated(delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(
        [["id", "text"], *([f"d{row}", text] for row, text in enumerate(TEXTS))]
    )
    return out.getvalue().encode()


def table() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": ["d0", "d1", "d2"], "text": TEXTS, "source": ["s"] * 3}), out)
    return out.getvalue()


def archive(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def mailbox() -> bytes:
    return b"".join(
        f"From a@b Mon Jan  1 12:0{row}:00 2024\nSubject: s\n\n{text}\n\n".encode()
        for row, text in enumerate(TEXTS)
    )


def single(name: str, form: str) -> dict[str, bytes]:
    return {name.format(row): form.format(text).encode() for row, text in enumerate(TEXTS)}


KINDS: dict[str, Callable[[], dict[str, bytes]]] = {
    "lines": lambda: {"a.jsonl": json_lines()},
    "packed lines": lambda: {"a.jsonl.gz": gzip.compress(json_lines())},
    "CSV": lambda: {"a.csv": separated(",")},
    "TSV": lambda: {"a.tsv": separated("\t")},
    "Parquet": lambda: {"a.parquet": table()},
    "lines in tar": lambda: {"a.tar": archive("x.jsonl", json_lines())},
    "CSV in tar": lambda: {"a.tar": archive("x.csv", separated(","))},
    "mbox": lambda: {"a.mbox": mailbox()},
    "WARC": lambda: {"a.warc.gz": warc_file([response(f"<p>{text}</p>".encode()) for text in TEXTS])},
    "text": lambda: single("{}.txt", "{}"),
    "web pages": lambda: single("{}.html", "<html><body><p>{}</p></body></html>"),
    "mail": lambda: single("{}.eml", "Subject: s\n\n{}\n"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_raw_records_of_all_kinds(kind: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for name, content in KINDS[kind]().items():
        (raw / name).write_bytes(content)
    call = {"to": str(tmp_path / "v0"), "source": "s", **OPTIONS}
    with pytest.raises(
        StageError, match=SAID if len(list(raw.iterdir())) == 1 else SAID.replace("row 1", "row [01]")
    ):
        dk.convert(str(raw), **call)
    summary = dk.convert(str(raw), on_bad_record="quarantine", max_bad_fraction=0.5, **call)
    assert (summary.exit_status, summary.counts["bad_records"]) == (0, 1)
    (bad,) = [
        json.loads(line)
        for path in (tmp_path / "v0/_quarantine/convert").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert bad["reason"] == "too_large"
    assert base64.b64decode(bad["raw_base64"])  # the beginning of it
    texts = dk.read_dataframe(str(tmp_path / "v0"), columns=["text"]).compute()["text"]
    assert [text.strip() for text in texts] == ["short", "last"]


@pytest.mark.parametrize("suffix, content", [("jsonl", json_lines()), ("parquet", table())])
@pytest.mark.parametrize("verb", ["tag", "mix", "dedupe"])
def test_documents_of_all_kinds(verb: str, suffix: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"v0/documents/a.{suffix}"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    calls: dict[str, Callable[..., Any]] = {
        "tag": lambda **more: dk.tag(str(tmp_path / "v0"), ["char_length_v1"], **more),
        "mix": lambda **more: dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), **more),
        "dedupe": lambda **more: dk.dedupe(str(tmp_path / "v0"), **more),
    }
    with pytest.raises(StageError, match=SAID):
        calls[verb](**OPTIONS)
    summary = calls[verb](on_bad_record="quarantine", max_bad_fraction=0.5, **OPTIONS)
    assert (summary.exit_status, summary.counts["bad_records"]) == (0, 1)


def test_a_row_of_csv_that_cannot_be_parsed_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows where the next row begins."""
    monkeypatch.setattr(sources_of_csv, "ROW_BYTES", 2000)
    (tmp_path / "a.csv").write_bytes(separated(","))
    with pytest.raises(
        StageError,
        match=r"a row is longer than the 2,000 bytes that are parsed at a time.*JSON lines or Parquet",
    ):
        dk.convert(str(tmp_path / "a.csv"), to=str(tmp_path / "v0"), source="s", **OPTIONS)
