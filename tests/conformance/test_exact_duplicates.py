"""Exact duplicates: the planted and the natural ones of the reference corpus, and the marks of the Dolma toolkit."""

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dolma_dask.verbs.dedupe.verb import dedupe

pytestmark = pytest.mark.conformance

NATURAL: list[str] = []
"""Documents of the corpus that repeat another one by themselves."""

HERE = {"scheduler": "synchronous", "progress": False}


def linked(target: Path, documents: Path) -> Path:
    """Return a dataset with links to the documents."""
    for path in documents.rglob("*.gz"):
        link = target / "documents" / path.relative_to(documents)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())
    return target


def read_rows(folder: Path) -> list[dict]:
    paths = sorted(folder.rglob("*.gz"), key=lambda path: str(path.relative_to(folder)).encode())
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def copies_of(documents: list[dict]) -> dict[str, list[str]]:
    """Return the ids of the documents that repeat an earlier text, by the id of the first that has it."""
    first: dict[str, str] = {}
    copies: dict[str, list[str]] = {}
    for document in documents:
        survivor = first.setdefault(document["text"], document["id"])
        if survivor != document["id"]:
            copies.setdefault(survivor, []).append(document["id"])
    return copies


def test_planted_and_natural_duplicates_of_the_corpus(shared, tmp_path):
    root = linked(tmp_path / "v0", shared / "corpus/documents")
    documents = read_rows(root / "documents")
    assert len({document["id"] for document in documents}) == len(documents)
    copies = copies_of(documents)
    done = dedupe(str(root), **HERE)
    rows = read_rows(root / "attributes/exact")
    assert [row["id"] for row in rows] == [document["id"] for document in documents]
    duplicates = {identity for others in copies.values() for identity in others}
    for document, row in zip(documents, rows, strict=True):
        span = [[0, len(document["text"]), 1]]
        assert row["attributes"] == ({"exact": span} if document["id"] in duplicates else {})
    assert done.counts["clusters"] == len(copies)

    truth = pq.read_table(shared / "corpus/truth.parquet").to_pylist()
    planted = {row["id"]: row["origin"] for row in truth if row["kind"] == "exact"}
    texts = {document["id"]: document["text"] for document in documents}
    assert planted
    assert all(texts[copy] == texts[origin] for copy, origin in planted.items())
    members = {identity for survivor, others in copies.items() for identity in (survivor, *others)}
    assert planted.keys() | set(planted.values()) <= members
    natural = sorted(members - planted.keys() - set(planted.values()))
    assert natural == NATURAL, "documents that repeat another without having been planted"


CASES = [("doc_text", "text", "dup_docs"), ("doc_url", "metadata.url", "dup_urls")]


@pytest.mark.parametrize(("folder", "by", "key"), CASES)
def test_the_same_documents_as_the_dolma_toolkit(shared, tmp_path, folder, by, key):
    reference = shared / "conformance/dolma/in/dedupe"
    root = linked(tmp_path / "v0", reference / "documents")
    dedupe(str(root), by=by, name=key, **HERE)
    ours, theirs = read_rows(root / f"attributes/{key}"), read_rows(reference / "attributes" / folder)
    texts = [document["text"] for document in read_rows(reference / "documents")]
    urls = [document["metadata"]["url"] for document in read_rows(reference / "documents")]
    assert [row["id"] for row in ours] == [row["id"] for row in theirs]
    for row, expected, text, url in zip(ours, theirs, texts, urls, strict=True):
        flags = {key: [[0, len(text), 1]]} if expected["attributes"] else {}
        assert json.dumps(row["attributes"]) == json.dumps(flags)
        if expected["attributes"]:  # their end is the length of the key, in bytes
            span = [[0, len((text if by == "text" else url).encode()), 1]]
            assert json.dumps(expected["attributes"][key]) == json.dumps(span)


LEAST = {"doc_text_skip_empty": {"skip_empty": True}, "doc_min_length": {"min_length": 6}}


@pytest.mark.parametrize("folder", LEAST)
def test_documents_that_are_too_short_are_left_out_as_by_the_dolma_toolkit(shared, tmp_path, folder):
    """It writes an empty list for them, where here is no key."""
    reference = shared / "conformance/dolma/in/dedupe"
    root = linked(tmp_path / "v0", reference / "documents")
    done = dedupe(str(root), name="dup_docs", **LEAST[folder], **HERE)
    ours, theirs = read_rows(root / "attributes/dup_docs"), read_rows(reference / "attributes" / folder)
    flagged = [row["id"] for row in theirs if row["attributes"].get("dup_docs")]
    assert [row["id"] for row in ours if row["attributes"]] == flagged
    assert (
        done.counts["documents_excluded"] == sum(row["attributes"] == {"dup_docs": []} for row in theirs) > 0
    )


PARAGRAPHS = {
    "par": {},
    "par_min_length": {"min_length": 6},
    "par_skip_empty": {"skip_empty": True},
    "par_ngram": {"ngram": 4, "stride": 2, "overlap": 0.5},
    "par_ngram0": {"ngram": 4, "stride": 2, "overlap": 0.0, "skip_short": True},
}


def flagged(root: Path, **options) -> list[list]:
    dedupe(str(root), unit="paragraph", name="dup_pars", **options, **HERE)
    return [row["attributes"].get("dup_pars", []) for row in read_rows(root / "attributes/dup_pars")]


@pytest.mark.parametrize("folder", PARAGRAPHS)
def test_the_same_paragraphs_as_the_dolma_toolkit(shared, tmp_path, folder):
    """But for its spans that end behind the text, or have no width."""
    reference = shared / "conformance/dolma/in/dedupe"
    root = linked(tmp_path / "v0", reference / "documents")
    texts = [document["text"] for document in read_rows(root / "documents")]
    for text, ours, row in zip(
        texts, flagged(root, **PARAGRAPHS[folder]), read_rows(reference / "attributes" / folder), strict=True
    ):
        theirs = row["attributes"].get("dup_pars", [])
        sane = [[s, min(e, len(text)), round(score, 5)] for s, e, score in theirs if s < len(text)]
        assert json.dumps(ours) == json.dumps(sane)


def test_paragraphs_for_which_the_dolma_toolkit_has_no_sane_answer(shared, tmp_path):
    """Its places drift by a character for each separator of two, and with a least number of words it flags nothing."""
    reference = shared / "conformance/dolma/in/dedupe"
    root = linked(tmp_path / "v0", reference / "documents")
    texts = [document["text"] for document in read_rows(root / "documents")]
    theirs = [row["attributes"].get("dup_pars", []) for row in read_rows(reference / "attributes/par_sep")]
    ours = flagged(root, separator=". ")
    assert list(map(len, ours)) == list(map(len, theirs))
    before: set[str] = set()
    for text, spans in zip(texts, ours, strict=True):
        places, start = {}, 0
        for part in text.split(". ") if text else []:
            places[start] = (min(start + len(part) + 2, len(text)), part)
            start += len(part) + 2
        expected = []
        for start, (end, part) in places.items():
            expected += [[start, end, 1]] if part in before else []
            before.add(part)
        assert spans == expected
    assert not any(
        row["attributes"].get("dup_pars") for row in read_rows(reference / "attributes/par_min_words")
    )
    few, every = flagged(root, min_words=3), flagged(root)
    assert 0 < sum(map(len, few)) < sum(map(len, every))
    assert all(span in whole for some, whole in zip(few, every, strict=True) for span in some)
