"""Taggers that run while pages of archives become documents: as `tag` finds it afterwards, and counted where they find nothing or fail."""

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.cli import main
from dolma_dask.errors import StageError, UsageError
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.pages import InlineTaggers, Pages
from dolma_dask.sources.warc import WarcArchive
from dolma_dask.taggers.base import NUMBER, Part, ViewTagger, each_text
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.archives import response, warc_file, warc_record

pytest.importorskip("resiliparse")

LICENCE = '<a href="https://creativecommons.org/licenses/by/4.0/">CC BY</a>'
TEXTS = ("One knot.", "Zwei Füße\nund mehr", "", "bad", "Five 👩‍👧 words are here", "One knot.")
QUIET: dict[str, Any] = {"source": "cc", "scheduler": "synchronous", "progress": False}
BOTH = ("cc_re", "cc_re_fast")
ON_TEXT = ("char_length_v1", "gopher_v2", "char_length_with_paragraphs_v1")


def pages(texts: Sequence[str] = TEXTS) -> list[bytes]:
    """Return records of pages, every second with a licence."""
    bodies = [
        f"<html><body><p>{text}</p>{LICENCE if row % 2 else ''}</body></html>"
        for row, text in enumerate(texts)
    ]
    return [response(body.encode(), f"https://a.org/{row}") for row, body in enumerate(bodies)]


def crawl(folder: Path, records: Sequence[bytes]) -> str:
    (folder / "crawl").mkdir()
    (folder / "crawl/a.warc.gz").write_bytes(warc_file(records))
    return str(folder / "crawl")


def documents(root: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, lines_of(sorted((root / "documents").rglob("*.gz")))))


def lines_of(paths: Sequence[Path]) -> list[str]:
    return [line for path in paths for line in gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]]


def attributes(root: Path, *names: str) -> list[dict[str, Any]]:
    """Return what `tag` finds afterwards."""
    dk.tag(str(root), [*names], scheduler="synchronous", progress=False, experiment="all")
    paths = sorted((root / "attributes/all").rglob("*.gz"))
    rows = map(json.loads, lines_of(paths))
    return [{key.removeprefix("all__"): value for key, value in row["attributes"].items()} for row in rows]


def without_set(row: dict[str, Any]) -> dict[str, Any]:
    return {key.partition("__")[2]: value for key, value in row.items()}


@pytest.mark.parametrize(
    ("pre", "post"), [(BOTH, ON_TEXT), (BOTH, ("gopher_v2", *BOTH)), ((), (*BOTH, *ON_TEXT))]
)
def test_as_tag_finds_it_afterwards(pre: Sequence[str], post: Sequence[str], tmp_path: Path) -> None:
    raw = crawl(tmp_path, pages())
    kept, lean = tmp_path / "kept", tmp_path / "lean"
    for root, keeps in ((kept, True), (lean, False)):
        dk.convert(raw, to=str(root), pre_taggers=pre, post_taggers=post, store_html=keeps, **QUIET)
    expected = attributes(kept, *dict.fromkeys([*pre, *post]))
    found = [one["attributes"] for one in documents(kept)]
    assert [without_set(row) for row in found] == expected
    assert all(key.split("__")[0] == key.split("__")[1] for row in found for key in row)
    assert sum("cc_re__cc_re__cc_by_4_0" in row for row in found) == 3
    for one in (without_html := documents(kept)):
        del one["metadata"]["html"]
    assert documents(lean) == without_html
    assert list(documents(lean)[0])[-1] == "attributes"


@pytest.mark.parametrize(("skip", "kept"), [("pre", [1, 3, 5]), ("post", [0, 1, 2])])
def test_what_has_no_finding_is_left_out_and_counted(skip: str, kept: list[int], tmp_path: Path) -> None:
    def of_text(text: str) -> tuple[float | None]:
        return (None if set(text.split()) & {"bad", "words", "six"} else 1.0,)

    some = ViewTagger.of("some_v1", "", Part(each_text(of_text, [NUMBER]), {"is": "document"}))
    raw = crawl(tmp_path, pages((*TEXTS[:5], "six")))
    taggers: Any = {"pre_taggers": ["cc_re"]} if skip == "pre" else {"post_taggers": [some]}
    whole = dk.convert(raw, to=str(tmp_path / "all"), **taggers, **QUIET)
    left = dk.convert(raw, to=str(tmp_path / "some"), **taggers, **{f"{skip}_skip": True}, **QUIET)
    every = documents(tmp_path / "all")
    assert documents(tmp_path / "some") == [every[row] for row in kept]
    assert left.counts[f"left_out_by_{skip}_skip"] == len(every) - len(kept) == 3
    assert f"3 pages left out by {skip}_skip" in str(left)
    assert "left out by" not in str(whole)


def picky(reads: tuple[str, ...]) -> ViewTagger:
    def of_text(text: str, *others: str) -> tuple[float]:
        if "bad" in text or "<p>bad" in "".join(others):
            raise ValueError("not this one")
        return (1.0,)

    part = Part(each_text(of_text, [NUMBER]), {"length": "document"})
    return ViewTagger.of("picky_v1", "", part, reads=reads)


@pytest.mark.parametrize("when", ["pre", "post"])
def test_a_tagger_that_fails_sets_the_record_aside(when: str, tmp_path: Path) -> None:
    damaged = warc_record(
        "response",
        b"HTTP/1.1 200 OK\r\n\r\nx",
        warc_target_uri="http://a",
        content_type="application/http",
        content_length="none",
    )
    records = [*pages()[:3], damaged, *pages()[3:]]
    raw = crawl(tmp_path, records)
    taggers: Any = {f"{when}_taggers": [picky(("text", "metadata")), "cc_re"]}
    with pytest.raises(StageError, match=r"tagger picky_v1 can do.*ValueError: not this one"):
        dk.convert(crawl_of(tmp_path, pages()), to=str(tmp_path / "v0"), **taggers, **QUIET)
    assert not list((tmp_path / "v0").rglob("documents/*.gz"))
    policy: Any = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    summary = dk.convert(raw, to=str(tmp_path / "v1"), **taggers, **policy, **QUIET)
    assert (summary.counts["bad_records"], summary.counts["documents_out"]) == (2, 5)
    (listed,) = (tmp_path / "v1/_quarantine").rglob("*.jsonl")
    aside = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [(one["row"], one["reason"]) for one in aside] == [(3, "damaged_record"), (4, "tagger_failed")]
    assert "row" not in aside[1]["expected"]  # of a batch, which nobody knows
    assert b"<p>bad</p>" in base64.b64decode(aside[1]["raw_base64"])
    offset = len(gzip.decompress(warc_file(records[:4])))
    assert aside[1]["byte_offset"] == offset
    kept = [one["text"][:4] for one in documents(tmp_path / "v1")]
    assert kept == ["One ", "Zwei", "", "Five", "One "]


def crawl_of(folder: Path, records: Sequence[bytes]) -> str:
    (folder / "other").mkdir()
    (folder / "other/a.warc.gz").write_bytes(warc_file(records))
    return str(folder / "other")


def test_attributes_that_make_a_record_too_large(tmp_path: Path) -> None:
    raw = crawl(tmp_path, pages(["short", "long " * 9]))
    plain = dk.convert(raw, to=str(tmp_path / "v0"), max_record_bytes=900, **QUIET)
    assert plain.counts["documents_out"] == 2
    with pytest.raises(StageError, match="at most 900 bytes"):
        dk.convert(raw, to=str(tmp_path / "v1"), post_taggers=["gopher_v2"], max_record_bytes=900, **QUIET)


def test_rows_depend_on_no_block(tmp_path: Path) -> None:
    crawl(tmp_path, [*pages(), b"damaged\r\n", *pages(["one", "two"])])
    taggers = InlineTaggers((get_tagger("cc_re"),), (get_tagger("gopher_v2"),), pre_skip=True)
    mapping = FieldMapping(source_name="cc")
    found = []
    for size in (1, 300, 1 << 20):
        url = str(tmp_path / "crawl/a.warc.gz")
        archive = WarcArchive(url, "a.warc.gz", mapping, size, pages=Pages(taggers=taggers))
        blocks = list(archive.read())
        rows = [line for block in blocks for line in block.batch.column(-1).to_pylist()]
        passed = sum(count for block in blocks for name, count in block.passed if name == "pre_skip")
        found.append((rows, [bad.row for block in blocks for bad in block.bad], passed, len(blocks)))
    assert found[0][:3] == found[1][:3] == found[2][:3]
    assert found[0][3] > found[2][3]
    assert found[0][1:3] == ([3], 4)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "text before it is found": ({"pre_taggers": ["gopher_v2"]}, "gopher_v2 looks at the text, which there is not before"),
    "skip without taggers": ({"post_skip": True}, "post_skip leaves out documents in which post_taggers find nothing"),
    "unknown": ({"pre_taggers": ["cc_er"]}, "did you mean 'cc_re'"),
    "twice": ({"post_taggers": ["gopher_v2", "gopher_v2"]}, "a tagger was given twice"),
    "needs a tokenizer": ({"post_taggers": ["tokens"]}, "tokens needs --tokenizer, which is an option of tag"),
    "beside a function": ({"post_taggers": ["gopher_v2"], "function": lambda record: record}, "expected one of both"),
    "files of other kinds": ({"post_taggers": ["gopher_v2"]}, "b.jsonl is none; expected such files alone"),
    "artifacts that nobody uses": ({"post_taggers": ["gopher_v2"], "artifacts": "."}, "none of the taggers gopher_v2 uses files"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    raw = crawl(tmp_path, pages())
    (tmp_path / "crawl/b.jsonl").write_text('{"id": "a", "text": "b"}\n')
    with pytest.raises(UsageError, match=message):
        dk.convert(raw, to=str(tmp_path / "v0"), **options, **QUIET)
    assert not (tmp_path / "v0").exists()


def test_the_words_of_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    crawl(tmp_path, pages())
    (tmp_path / "warc.yaml").write_text(
        "documents: [crawl/*.warc.gz]\ndestination: [out/documents]\nsource_name: cc\n"
        "pre: {taggers: [cc_re], skip: true}\npost: {taggers: [char_length_v1]}\n"
    )
    assert main(["-c", "warc.yaml", "warc", "--processes", "1"]) == 0
    key = "char_length_v1__char_length_v1__length"
    assert [sorted(one["attributes"]) for one in documents(tmp_path / "out")] == [
        ["cc_re__cc_re__cc_by_4_0", key]
    ] * 3
