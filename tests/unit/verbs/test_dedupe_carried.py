"""dedupe with signatures that another dataset has: the bytes are those of signatures that are made of the texts, whatever has become of the documents."""

import json
import random
import shutil

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.minhash.published import PUBLISHED

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
NEAR = {"how": "fuzzy", "name": "near", **HERE}
WORDS = [f"w{number}" for number in range(300)]


def document(draw, number):
    text = " ".join(draw.choices(WORDS, k=draw.choice((0, 3, 40, 200))))
    return {"id": f"d{number}", "source": f"s{number % 2}", "text": text}


def write(root, documents, shards):
    for shard in range(shards):
        lines = [json.dumps(one) for one in documents[shard::shards]]
        write_lines(root / f"documents/{shard}.jsonl.gz", lines)
    return str(root)


def content(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in ("signatures", "attributes")
        for path in sorted((root / folder).rglob("*.*"))
    }


@pytest.fixture
def signed(tmp_path):
    """A dataset with signatures, and its documents: copies of a text under several ids, an id twice with texts of one length, an unreadable row."""
    draw = random.Random(1)
    documents = [document(draw, number) for number in range(120)]
    documents += [{**one, "id": f"copy-{one['id']}"} for one in documents[:20]]
    documents += [
        {"id": "twice", "source": "s", "text": f"{word} {'and more ' * 30}"} for word in ("one", "two")
    ]
    root = write(tmp_path / "v0", documents, 3)
    dk.dedupe(root, **NEAR)
    return root, documents


def test_the_bytes_are_those_of_signatures_that_are_made(signed, tmp_path):
    source, documents = signed
    random.Random(2).shuffle(documents)
    kept = [one for one in documents if one["id"] != "twice"][10:]
    kept[3] = {**kept[3], "text": kept[3]["text"] + "!"}
    kept[5] = {"id": "new", "source": "s", "text": " ".join(WORDS)}
    for name in ("made", "carried"):
        write(tmp_path / name, [*kept, *(one for one in documents if one["id"] == "twice")], 4)
    dk.dedupe(str(tmp_path / "made"), **NEAR)
    summary = dk.dedupe(str(tmp_path / "carried"), signatures=source, **NEAR)
    assert content(tmp_path / "carried") == content(tmp_path / "made")
    assert summary.counts["signatures_carried"] == len(kept) - 2
    again = dk.dedupe(str(tmp_path / "carried"), **NEAR)
    assert again.done == 0


def test_published_ones_follow_too_and_none_is_made(signed, tmp_path):
    _, documents = signed
    ids = [f"2023-06/0000/en_head.json.gz/{number}" for number in range(len(documents))]
    published = [{**one, "id": identity} for one, identity in zip(documents, ids, strict=True)]
    raw = tmp_path / "raw"
    write_lines(raw / "documents/2023-06/0000/en_head.jsonl.gz", map(json.dumps, published))
    dk.sign(str(raw), str(tmp_path / "tables"), **HERE)
    scheme = {"scheme": "redpajama_v2", "ngram": PUBLISHED.ngram, **NEAR}
    dk.dedupe(str(raw), signatures=str(tmp_path / "tables"), **scheme)
    mixed = tmp_path / "mixed"
    dk.mix(str(raw), to=str(mixed), shuffle=True, shards=2, **HERE)
    dk.mix(str(raw), to=str(tmp_path / "made"), shuffle=True, shards=2, **HERE)
    write_lines(
        mixed / "documents/part-0002.jsonl.gz",
        [json.dumps({"id": "x", "source": "", "text": " ".join(WORDS)})],
    )
    summary = dk.dedupe(str(mixed), signatures=str(raw), **scheme)
    assert summary.counts["not_in_tables"] == 1
    dk.dedupe(str(tmp_path / "made"), **scheme)
    rows = [
        read_lines(root / f"attributes/near/part-{n:04d}.jsonl.gz")
        for root in (mixed, tmp_path / "made")
        for n in (0, 1)
    ]
    assert rows[:2] == rows[2:]
    flags = content(raw)
    shutil.rmtree(tmp_path / "tables")
    again = dk.dedupe(str(raw), signatures=str(raw), **scheme)
    assert again.counts["signatures_carried"] == len(documents)
    assert dk.dedupe(str(raw), signatures=str(raw), **scheme).done == 0
    assert content(raw) == flags


def test_other_texts_of_the_same_length_are_found_out(signed, tmp_path):
    source, documents = signed
    other = [{**one, "text": one["text"].replace("w1", "v1")} for one in documents]
    root = write(tmp_path / "v1", other, 1)
    with pytest.raises(StageError, match=r"is another one than was signed, though as long; .* Leave it out"):
        dk.dedupe(root, signatures=source, **NEAR)


def test_what_is_refused(signed, tmp_path):
    source, documents = signed
    root = write(tmp_path / "v1", documents, 1)
    with pytest.raises(
        UsageError, match=r"none with the parameters .*-64-.* There are: dolma_dask-word5-128-seed42"
    ):
        dk.dedupe(root, num_perm=64, num_bands=8, rows_per_band=8, signatures=source, **NEAR)
    (file,) = list((tmp_path / "v0/signatures").rglob("0*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"is not the file of .* bytes that dedupe has written"):
        dk.dedupe(root, signatures=source, **NEAR)
