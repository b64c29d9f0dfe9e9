"""WARC and WET files as documents: as the Dolma toolkit makes them, and what damaged, odd and hostile records become."""

import base64
import gzip
import hashlib
import json
import random
import tarfile
import zlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.formats.http_messages import PayloadError, payload_of
from dolma_dask.io.records import QUARANTINE_HEAD
from dolma_dask.io.warc import WarcRecord, parse_head, read_records
from dolma_dask.journal import Journal
from dolma_dask.sources.pages import MAX_DEPTH, Pages
from dolma_dask.testing.archives import response, warc_file, warc_record
from dolma_dask.text.urls import normalized_url

pytest.importorskip("resiliparse")


def digest(body: bytes) -> str:
    return base64.b32encode(hashlib.sha1(body).digest()).decode()


def page(words: str, head: str = "", encoding: str = "utf-8") -> bytes:
    text = f"<html><head>{head}<title>T</title></head><body><nav>menu</nav><p>{words}</p><img alt=pic></body></html>"
    return text.encode(encoding)


def converted(folder: Path, data: bytes, name: str = "raw/a.warc.gz", **options: Any) -> list[dict[str, Any]]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    call = {"to": str(folder / "v0"), "source": "cc", "scheduler": "synchronous", "progress": False} | options
    summary = dk.convert(str(path.parent), **call)
    documents = [
        json.loads(line)
        for shard in sorted((folder / "v0/documents").rglob("*.gz"))
        for line in gzip.decompress(shard.read_bytes()).decode().splitlines()
    ]
    assert summary.counts["documents_out"] == len(documents)
    return documents


def quarantined(folder: Path) -> list[tuple[str, int, str]]:
    lines = [
        line
        for path in (folder / "v0/_quarantine/convert").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    records = map(json.loads, lines)
    return [(one["reason"], one["byte_offset"], one["expected"]) for one in records]


def test_as_the_toolkit_makes_them(tmp_path: Path) -> None:
    """Recorded from `dolma warc` 1.2.1 with resiliparse 2.0.1; `created` there is the clock of the server, `warc_filename` the id of the record warcinfo."""
    first = page("One Füße")
    latin = page("café", encoding="latin-1")
    records = [
        response(
            first,
            "http://www.Example.org:80/a/../b/?b=2&a=1#x",
            head="Content-Type: text/html; charset=utf-8\r\nDate: Wed, 01 May 2024 12:30:05 GMT",
            warc_payload_digest="sha1:" + digest(first),
        ),
        warc_record("request", b"GET / HTTP/1.1\r\n\r\n"),
        response(latin, head="content-type: TEXT/HTML; Charset='ISO-8859-1'", warc_payload_digest="sha1:ABC"),
        warc_record("resource", first, content_type="text/html", warc_target_uri="https://x.org/r"),
        response(b"plain\ntext", head="Content-Type: text/plain"),
    ]
    documents = converted(tmp_path, warc_file(records), store_html=True)
    info = len(gzip.decompress(warc_file([])))
    assert documents[0] == {
        "id": digest(first).lower(),
        "text": "One Füße",
        "source": "cc",
        "created": "2024-05-01T12:30:00.000Z",
        "metadata": {
            "warc_url": "http://www.Example.org:80/a/../b/?b=2&a=1#x",
            "url": "example.org/b/?a=1&b=2",
            "warc_date": "2024-05-01T12:30:00.000Z",
            "warc_filename": "CRAWL-00000.warc.gz",
            "content_type": "text/html",
            "uncompressed_offset": info,
            "warc_record_id": documents[0]["metadata"]["warc_record_id"],
            "title": "T",
            "html": first.decode(),
        },
    }
    assert [one["id"] for one in documents[1:]] == [
        "abc",
        f"{digest(first).lower()}-1",
        digest(b"plain\ntext").lower(),
    ]
    assert [one["text"] for one in documents] == ["One Füße", "café", "One Füße", "plain\ntext"]
    assert documents[1]["metadata"]["encoding"] == "cp1252"
    tagged = dk.tag(str(tmp_path / "v0"), taggers=["cc_re"], scheduler="synchronous", progress=False)
    assert tagged.exit_status == 0


def test_wet(tmp_path: Path) -> None:
    fields = {
        "content_type": "text/plain",
        "warc_target_uri": "http://a.org",
        "warc_refers_to": "<urn:uuid:1>",
    }
    fields |= {"warc_block_digest": "sha1:Q", "warc_identified_content_language": "deu,eng"}
    data = warc_file([warc_record("conversion", "Zeile\nüber".encode(), **fields)])
    (document,) = converted(tmp_path, data, "raw/a.warc.wet.gz")
    assert (document["id"], document["text"]) == ("q", "Zeile\nüber")
    kept = {name: document["metadata"][name] for name in ("warc_refers_to", "warc_languages")}
    assert kept == {"warc_refers_to": "urn:uuid:1", "warc_languages": "deu,eng"}


PASSED = {
    "request": warc_record("request", b"GET"),
    "metadata": warc_record("metadata", b"a: b"),
    "revisit": warc_record("revisit", b"HTTP/1.1 200 OK\r\n\r\n"),
    "other types of records": warc_record("mine", b"x"),
    "status 404": response(page("gone"), status="404 Not Found"),
    "status 301": response(b"", status="301 Moved"),
    "status 300": response(page("several"), status="300 Multiple Choices"),
    "image/png": response(b"\x89PNG", head="Content-Type: image/png"),
    "application/json": response(b"<html>", head="Content-Type: application/json"),
    "text/css": response(b"a {}", head="Content-Type: TEXT/CSS; charset=utf-8"),
    "other content types": response(b"a", head="Content-Type: what is this"),
    "text/dns": warc_record("response", b"2024 a.org", content_type="text/dns", warc_target_uri="dns:a.org"),
    "empty": response(b" \r\n"),
    "application/pdf": response(page("x"), warc_identified_payload_type="application/pdf"),
}


def test_passed_over(tmp_path: Path) -> None:
    """What holds no page or text is no document, and is counted by what it is."""
    path = tmp_path / "raw/a.warc.gz"
    path.parent.mkdir()
    path.write_bytes(warc_file([*PASSED.values(), response(page("kept"))]))
    summary = dk.convert(str(path), to=str(tmp_path / "v0"), source="s", scheduler="synchronous")
    assert summary.counts["documents_out"] == 1
    assert summary.counts["records_passed_over"] == len(PASSED) + 1  # warcinfo
    assert summary.exit_status == 0
    record = Journal(summary.target, "convert").records["documents/a.jsonl.gz"]
    assert record.info["passed_over"] == {**dict.fromkeys(PASSED, 1), "warcinfo": 1}
    assert "status 404 1" in " ".join(summary.notes)


def chunked(body: bytes) -> bytes:
    return (
        b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:]))
        + b"0\r\nA: b\r\n\r\n"
    )


CODED: dict[str, tuple[bytes, str, dict[str, str]]] = {
    "chunked": (chunked(page("Füße")), "Transfer-Encoding: chunked", {}),
    "not chunked": (page("Füße"), "Transfer-Encoding: chunked", {}),
    "gzip": (gzip.compress(page("Füße")), "Content-Encoding: gzip", {}),
    "not gzip": (page("Füße"), "Content-Encoding: x-gzip", {}),
    "both": (
        chunked(gzip.compress(page("Füße"))),
        "Content-Encoding: gzip\r\nTransfer-Encoding: chunked",
        {},
    ),
    "deflate": (zlib.compress(page("Füße")), "Content-Encoding: deflate", {}),
    "raw deflate": (zlib.compress(page("Füße"), wbits=-15), "Content-Encoding: deflate", {}),
    "br": (pa.compress(page("Füße"), "brotli", asbytes=True), "content-encoding: BR", {}),
    "zstd": (pa.compress(page("Füße"), "zstd", asbytes=True), "Content-Encoding: zstd", {}),
    "cut gzip": (
        gzip.compress(page("Füße " + " ".join(map(str, range(9_999)))))[:-40],
        "Content-Encoding: gzip",
        {"warc_truncated": "length"},
    ),
    "cut character": (page("Füße " + "ü" * 20)[:-46], "", {"warc_truncated": "length"}),
    "meta": (page("Füße", '<meta charset="iso-8859-1">', "latin-1"), "", {}),
    "charset against meta": (
        page("Füße", '<meta charset="windows-1251">', "latin-1"),
        "; charset=iso-8859-1",
        {},
    ),
    "wrong charset": (page("Füße", encoding="latin-1"), "; charset=utf-8", {}),
    "unknown charset": (page("Füße"), "; charset=unicode_escape", {}),
    "blanks for a charset": (
        page("Füße", f"<meta charset={' ' * 4_000}>"),
        f"; charset={' ' * 500_000};",
        {},
    ),
    "UTF-16": (b"\xff\xfe" + page("Füße", encoding="utf-16-le"), "; charset=utf-8", {}),
    "no type": (page("Füße").replace(b"<html>", b"<!DOCTYPE html>\n<html>"), "none", {}),
    "old line ends": (page("Füße"), "\n", {}),
}


@pytest.mark.parametrize("kind", CODED)
def test_payloads(kind: str, tmp_path: Path) -> None:
    """Codings are undone where they are there, and the encoding is found."""
    body, more, fields = CODED[kind]
    head = "Content-Type: text/html" + (more if more.startswith(";") else f"\r\n{more}")
    record = response(body, head="" if more == "none" else head, **fields)
    if more == "\n":
        record = response(page("Füße").replace(b"\r\n", b"\n")).replace(
            b"text/html\r\n\r\n", b"text/html\n\n"
        )
        record = record.replace(b"Content-Length: ", b"Content-Length: 0000")
    if kind == "old line ends":
        block = b"HTTP/1.0 200\nContent-Type: text/html\n\n" + body
        record = warc_record("response", block, warc_target_uri="http://a.org").replace(b"\r\n", b"\n", 6)
    (document,) = converted(tmp_path, warc_file([record]))
    assert document["text"].startswith("Füße")


def test_heads() -> None:
    """Names are in any case, the first of two counts, and a value may go on in the next line."""
    head = parse_head("A: b\r\n\tc ü\r\na: x\r\nnone\r\nB :y:z\n".encode())
    assert head == {"a": "b c ü", "b": "y:z"}
    assert parse_head("U: ü".encode("latin-1")) == {"u": "ü"}


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("2024-05-01T12:30:05Z", "2024-05-01T12:30:05.000Z"),
        ("2024-05-01T12:30:05.1Z", "2024-05-01T12:30:05.100Z"),
        ("2024-05-01T12:30:05.123456Z", "2024-05-01T12:30:05.123Z"),
        ("2024-05-01", ""),
    ],
)
def test_dates(written: str, date: str) -> None:
    assert WarcRecord(0, {"warc-date": written}, b"", 0).date == date


def test_bodies_as_servers_send_them() -> None:
    """Chunks with either line end, deflate with either head, and no more than is allowed."""
    body = b"x" * 100
    chunks = b"64\n" + body + b"\n0\n\n"
    assert payload_of(chunks, {"transfer-encoding": "chunked"}, 100, is_cut=False) == body
    stored = [
        b"\x08",
        (5).to_bytes(2, "little"),
        (5 ^ 0xFFFF).to_bytes(2, "little"),
        b"hello",
        b"\x01\0\0\xff\xff",
    ]
    deflate = {"content-encoding": "deflate"}
    assert payload_of(b"".join(stored), deflate, 100, is_cut=False) == b"hello"
    packed = gzip.compress(body)
    assert payload_of(packed, {"content-encoding": "gzip"}, 100, is_cut=False) == body
    with pytest.raises(PayloadError, match="at most 99 bytes"):
        payload_of(packed, {"content-encoding": "gzip"}, 99, is_cut=False)


def test_damaged_text_of_a_page_is_replaced_and_counted(tmp_path: Path) -> None:
    body = page("Füße für Käse, Ähre, Öfen, Übel, süß, groß").replace(b"K\xc3\xa4", b"K\xa4")
    (document,) = converted(tmp_path, warc_file([response(body)]))
    assert "K\ufffdse" in document["text"]
    assert document["metadata"]["replaced_characters"] == 1


GOOD = response(page("good"))
DAMAGED: dict[str, tuple[bytes, str]] = {
    "length too small": (response(page("x"), content_length="50"), "the end of the record after 50 bytes"),
    "length too large": (
        response(page("x"), content_length="200"),
        "the end of the record after 200 bytes",
    ),
    "length beyond the end": (response(page("x"), content_length="90000"), "90,000 bytes behind the head"),
    "length far beyond the end": (
        response(page("x"), content_length="99999999999"),
        "99,999,999,999 bytes behind the head",
    ),
    "no length": (response(page("x"), content_length=""), "Content-Length with a number"),
    "odd length": (response(page("x"), content_length="-7"), "Content-Length with a number"),
    "no type": (response(page("x"), warc_type=""), "a field WARC-Type"),
    "no record": (b"\x00\x01 rubbish\r\n" * 9, "a line such as WARC/1.0"),
    "old format": (b"WARC/x.y\r\nA: b\r\n\r\n", "a line such as WARC/1.0"),
    "endless head": (
        b"WARC/1.0\r\n" + b"A: b\r\n" * 20_000 + b"\r\n\r\n",
        "an empty line behind the head",
    ),
    "no URL": (response(page("x"), warc_target_uri=""), "WARC-Target-URI"),
    "no status": (
        response(page("x")).replace(b"HTTP/1.1 200 OK", b"GARBAGE 1 2 3 4"),
        "a line such as HTTP/1.1",
    ),
    "cut gzip": (
        response(
            gzip.compress(page("x" * 999))[:-9], head="Content-Type: text/html\r\nContent-Encoding: gzip"
        ),
        "a whole body in gzip",
    ),
    "cut chunks": (
        response(chunked(page("x"))[:60], head="Content-Type: text/html\r\nTransfer-Encoding: chunked"),
        "chunks up to one of 0 bytes",
    ),
    "unknown coding": (
        response(b"x", head="Content-Type: text/html\r\nContent-Encoding: magic"),
        "gzip, deflate, br or zstd",
    ),
    "NUL": (response(b"a" * 99 + b"\0b", head="Content-Type: text/plain"), "without NUL"),
    "bomb": (
        response(
            gzip.compress(b"<p>" + b"x" * 3_000_000), head="Content-Type: text/html\r\nContent-Encoding: gzip"
        ),
        "at most 1,000,000 bytes",
    ),
}


@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_records(kind: str, suffix: str, tmp_path: Path) -> None:
    """A damaged record fails the file with its place, or is set aside, and the others are documents."""
    bad, expected = DAMAGED[kind]
    data = warc_file([GOOD, bad, response(page("last"), "http://b.org")])
    plain = gzip.decompress(data)
    options = {"max_record_bytes": 1_000_000, "max_bad_fraction": 0.5}
    content = data if suffix.endswith("gz") else plain
    offset = plain.index(bad)
    with pytest.raises(StageError, match=f"row 1, byte {offset}: "):
        converted(tmp_path, content, f"raw/a.{suffix}", **options)
    documents = converted(
        tmp_path, content, f"raw/a.{suffix}", on_bad_record="quarantine", overwrite=True, **options
    )
    assert [one["text"] for one in documents] == ["good", "last"]
    ((reason, at, why),) = quarantined(tmp_path)
    assert (reason, at) == ("nul_byte" if kind == "NUL" else "damaged_record", offset)
    assert expected in why


def test_records_in_any_pieces() -> None:
    """Records do not depend on where the pieces of a file begin."""
    bad = [
        *(DAMAGED[kind][0] for kind in ("length too small", "length too large", "no record", "no length")),
        *(response(page("x"), content_length=length) for length in ("4500", "99999", "99999")),
    ]
    large = warc_record("resource", b"y" * 5_000)
    data = gzip.decompress(
        warc_file([*(one for each in bad for one in (GOOD, each)), GOOD, large, b"\r\n\r\n", GOOD])
    )
    whole = list(read_records(lambda: iter([data]), "a", 4_000))
    assert [one.size for one in whole if one.type == "resource"] == [5_000]
    assert sum(one.damage != "" for one in whole) == len(bad)
    for size in (1, 3, 64, 1000, 5001):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert list(read_records(partial(iter, pieces), "a", 4_000)) == whole, size


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n\n", b"\r\n\r\n"])
def test_ends_of_records(end: bytes) -> None:
    """A record ends where its length says, also without the lines behind it; one of the size that is allowed is whole."""
    block = b"y" * 2 * QUARANTINE_HEAD
    one = warc_record("resource", block).removesuffix(b"\r\n\r\n")
    data = one + end + one + end
    found = list(read_records(lambda: iter([data]), "a", len(block)))
    assert [(each.block == block, each.damage) for each in found] == [(True, "")] * 2


@pytest.mark.parametrize("cut", [3, 30, 250, 600])
@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
def test_truncated_files(cut: int, suffix: str, tmp_path: Path) -> None:
    data = warc_file([GOOD, response(page("w" * 900))])
    content = data if suffix.endswith("gz") else gzip.decompress(data).rstrip()
    content = content[: -min(cut, 250) if suffix.endswith("gz") else -cut]
    for options in ({}, {"max_record_bytes": 500, "on_bad_record": "quarantine"}):
        with pytest.raises(StageError, match="truncated"):
            converted(tmp_path, content, f"raw/a.{suffix}", **options)


def test_large_records(tmp_path: Path) -> None:
    """A page longer than allowed is set aside with its beginning; what is no page is passed over whatever its length."""
    large = response(page("x" * 300_000))
    picture = response(b"y" * 300_000, head="Content-Type: image/png")
    data = warc_file([large, picture, GOOD])
    documents = converted(
        tmp_path, data, max_record_bytes=100_000, on_bad_record="quarantine", max_bad_fraction=0.5
    )
    assert [one["text"] for one in documents] == ["good"]
    ((reason, _, _),) = quarantined(tmp_path)
    assert reason == "too_large"


def test_deep_pages_take_no_minutes() -> None:
    assert Pages().read("<div>" * 100_000 + "x").text == "x"
    assert Pages().read("<div>" * (MAX_DEPTH - 1) + "<nav>menu</nav><p>x").text == "x"


def test_other_ids_functions_and_tars(tmp_path: Path) -> None:
    one = converted(tmp_path / "a", warc_file([GOOD, GOOD]), id="warc_record_id", metadata=["url"])
    assert [set(document["metadata"]) for document in one] == [{"url"}] * 2
    assert one[0]["id"].startswith("urn:uuid:")

    def shout(record):
        return {"id": record["id"], "text": record["text"].upper()} if "html" in record else None

    assert [
        item["text"] for item in converted(tmp_path / "b", warc_file([GOOD]), function=shout, store_html=True)
    ] == ["GOOD"]
    (tmp_path / "x.warc.gz").write_bytes(warc_file([GOOD]))
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.add(tmp_path / "x.warc.gz", "x.warc.gz")
    in_tar = converted(tmp_path / "c", (tmp_path / "x.tar").read_bytes(), "raw/x.tar")
    assert [document["text"] for document in in_tar] == ["good"]
    with pytest.raises(StageError, match="--source NAME"):
        converted(tmp_path / "d", warc_file([GOOD]), source=None)


def test_options_of_pages_make_other_documents(tmp_path: Path) -> None:
    converted(tmp_path, warc_file([GOOD]))
    with pytest.raises(UsageError, match="store_html"):
        converted(tmp_path, warc_file([GOOD]), store_html=True)
    (document,) = converted(tmp_path, warc_file([GOOD]), store_html=True, overwrite=True)
    assert document["metadata"]["html"] == page("good").decode()
    (tmp_path / "raw/a.warc.gz").unlink()
    html = {"store_html": True, "overwrite": True}
    (document,) = converted(tmp_path, page("of a file"), "raw/a.html", **html)
    assert document["metadata"]["html"] == page("of a file").decode()
    if find_spec("trafilatura") is None:
        with pytest.raises(UsageError, match=r"dolma-dask\[trafilatura\]"):
            converted(tmp_path, page("x"), "raw/a.html", extractor="trafilatura")


def test_look_finds_the_command(tmp_path: Path) -> None:
    (tmp_path / "crawl").mkdir()
    (tmp_path / "crawl/a.warc.gz").write_bytes(warc_file([GOOD, response(page("other"))]))
    answer = dk.look(str(tmp_path / "crawl"))
    assert answer.facts["looked at"] == "2 documents"
    (command,) = answer.commands
    assert command.endswith("--source crawl")


URLS = """
http://www.Example.com/ example.com
https://www2.example.com:443/a/../b/./c//d/ example.com/b/c/d
http://example.com:80/path?b=2&a=1&c= example.com/path?a=1&b=2&c=
http://user:pw@example.com/x#frag user:pw@example.com/x
http://bücher.example/straße?q=äö xn--bcher-kva.example/stra%C3%9Fe?q=%C3%A4%C3%B6
http://example.com/%7euser/%2F%3f?x=%41%2b+b example.com/~user/%2F%3F?x=A%2B+b
http://EXAMPLE.com/A%20B?B=1&A=2&A=1 example.com/A%20B?A=1&A=2&B=1
<http://example.com/q> example.com/q
http://example.com/a;b=c?d;e example.com/a;b=c?d;e=
http://www.www.example.com/// www.example.com
http://example.com/? example.com
http://192.168.0.1:8080/x 192.168.0.1:8080/x
http://example.com/|x|/[y] example.com/%7Cx%7C/[y]
http://example.com/?u=http://a.b/c?d=e example.com/?u=http://a.b/c?d%3De
http://example.com/?a=1;b=2 example.com/?a=1;b%3D2
http://[::1]:80/x [::1]/x
http://example.com/%zz?%zz=% example.com/%25zz?%25zz=%25
http://example.com/.a/..b/. example.com/.a/..b
http://example.com./a example.com/a
"""


def test_urls() -> None:
    """As the toolkit writes them, by way of w3lib 2.5.0 and url-normalize 3.1.0."""
    for line in URLS.strip().splitlines():
        given, expected = line.split(" ")
        assert normalized_url(given) == expected
    for none in ("dns:a.org", "", "a", "http://", "http://[::1/x", "http://a:b/"):
        assert normalized_url(none) == ""


# ------------------------------------------------------------------------------------------------ parts of a large file

WORDS = [f"page number {number} " + "word " * (7 * number % 40) for number in range(40)]


def in_parts(folder: Path, data: bytes, size: int, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the documents of an archive that is cut after so many stored bytes, part by part."""
    monkeypatch.setattr("dolma_dask.sources.plan.WARC_PART_BYTES", size)
    documents = converted(folder, data)
    paths = sorted((folder / "v0/documents").glob("*.gz"))
    count = -(-len(data) // size)
    assert [path.name for path in paths] == [f"a-{n:05d}-of-{count:05d}.jsonl.gz" for n in range(count)]
    return documents


@pytest.mark.parametrize("size", [97, 500, 1777])
def test_parts_hold_what_the_file_holds(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut, each document is in one part, and its offset counts from a member that stands at the stored byte it names."""
    data = warc_file([response(page(words), f"http://a.org/{n}") for n, words in enumerate(WORDS)])
    whole = converted(tmp_path / "whole", data)
    parts = in_parts(tmp_path / "parts", data, size, monkeypatch)
    assert (
        [one["text"] for one in parts] == [one["text"] for one in whole] == [words.strip() for words in WORDS]
    )
    for part, one in zip(parts, whole, strict=True):
        start, offset = part["metadata"].pop("part_offset", 0), part["metadata"].pop("uncompressed_offset")
        assert one["text"].encode() in gzip.decompress(data[start:])[offset : offset + 600]
        del one["metadata"]["uncompressed_offset"]
        assert part == one  # its date and file name too, which the first record says


def test_parts_of_one_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is one member is in its first part."""
    plain = gzip.decompress(warc_file([response(page(words)) for words in WORDS]))
    documents = in_parts(tmp_path, gzip.compress(plain, mtime=0), 300, monkeypatch)
    assert [one["text"] for one in documents] == [words.strip() for words in WORDS]


@pytest.mark.parametrize(("level", "size"), [(0, 200), (0, 20_000), (6, 20_000)])
def test_an_archive_within_the_archive_misleads_no_part(
    level: int, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What deflate cannot make smaller is stored as it is: there the members of another archive are not cut, nor begun with."""
    draw = random.Random(1).randbytes
    inner = warc_file([response(draw(size), head="Content-Type: image/png") for _ in range(300_000 // size)])
    outer = [response(page("before")), response(inner, head="Content-Type: application/octet-stream")]
    data = b"".join(
        gzip.compress(record, level, mtime=0) for record in [*outer, *(response(page(w)) for w in WORDS)]
    )
    assert inner[80_000:80_100] in data, "it stands there as it is"
    documents = in_parts(tmp_path, data, len(data) // 7, monkeypatch)
    assert [one["text"] for one in documents] == ["before", *(words.strip() for words in WORDS)]


def test_a_hole_where_a_file_is_cut_is_no_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros in place of members are an error in parts too, but for those behind the last one."""
    members = [warc_file([response(page(words))]) for words in WORDS]
    zeros = b"".join(bytes(len(one)) if 9 <= n < 20 else one for n, one in enumerate(members))
    cut = sum(map(len, members[:15]))
    with pytest.raises(StageError, match=r"a-00000-of-.*garbage after the last gzip member"):
        in_parts(tmp_path / "hole", zeros, cut, monkeypatch)
    assert len(in_parts(tmp_path / "end", b"".join(members) + bytes(4096), cut, monkeypatch)) == len(WORDS)


def test_a_file_with_the_name_of_a_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = warc_file([response(page(words)) for words in WORDS])
    count = -(-len(data) // 500)
    (tmp_path / "raw").mkdir()
    (tmp_path / f"raw/a-00001-of-{count:05d}.warc.gz").write_bytes(warc_file([GOOD]))
    with pytest.raises(UsageError, match=rf"would both become documents/a-00001-of-{count:05d}\.jsonl\.gz"):
        in_parts(tmp_path, data, 500, monkeypatch)


def test_parts_on_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on one whose open files share their position."""
    store = fsspec.filesystem("memory")
    store.pipe_file("/warc-parts/raw/a.warc.gz", warc_file([response(page(words)) for words in WORDS]))
    monkeypatch.setattr("dolma_dask.sources.plan.WARC_PART_BYTES", 500)
    call = {"to": "memory://warc-parts/v0", "source": "cc", "scheduler": "synchronous", "progress": False}
    summary = dk.convert("memory://warc-parts/raw", **call)
    store.rm("/warc-parts", recursive=True)
    assert summary.counts["documents_out"] == len(WORDS)


def test_parts_beside_the_file_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --shard-bytes files stay whole."""
    data = warc_file([response(page(words)) for words in WORDS])
    monkeypatch.setattr("dolma_dask.sources.plan.WARC_PART_BYTES", 500)
    assert len(converted(tmp_path, data, shard_bytes=1_000_000)) == len(WORDS)
