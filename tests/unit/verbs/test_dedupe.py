"""dedupe: who is marked for every `by` and `keep`, rows that line up, going on after anything, what is refused."""

import json
import random
import shutil
import tracemalloc
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    ExpressionError,
    InterruptedStageError,
    StageError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.exchange import job as exchange_job
from dolma_dask.exchange.flag_rows import FlagRows
from dolma_dask.exchange.flags import ShardCursor
from dolma_dask.journal import Journal
from dolma_dask.results.parts import Fact
from dolma_dask.verbs.dedupe.flags import DuplicateOutput
from dolma_dask.verbs.dedupe.job import FLAGS, KeyEmitter
from dolma_dask.verbs.dedupe.verb import dedupe

from .conftest import failing, read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}


def document(identity, text, source="s", **metadata):
    return {"id": identity, "text": text, "source": source, "metadata": metadata}


SHARDS = {
    "a.jsonl.gz": [
        document("1", "été", "web", url="u1", n=3),
        document("2", "b", "books", url="u2", n=1.5, flag=True),
        document("3", "été", "books", url="u1"),
        document("4", "", "web", n=-0.0, flag=False),
    ],
    "x/b.jsonl.gz": [
        document("1", "b", "web", url="u3", n=0),
        document("1", "longer b", "books", url=None, n=3, flag=True),
        document("2", "", "books", n=7),
        document("9", "été", "web", url="u1", n=9),
    ],
}
DOCUMENTS = [doc for docs in SHARDS.values() for doc in docs]


def write(root, shards):
    for name, docs in shards.items():
        write_lines(root / "documents" / name, [json.dumps(doc, ensure_ascii=False) for doc in docs])
    return root


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return write(tmp_path / "v0", SHARDS)


def outputs(root, name="exact"):
    """Return the bytes of every attribute file."""
    folder = root / "attributes" / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*"))}


def rows_of(root, name="exact"):
    folder = root / "attributes" / name
    return [json.loads(line) for path in outputs(root, name) for line in read_lines(folder / path)]


def marked(root, name="exact"):
    return [place for place, row in enumerate(rows_of(root, name)) if row["attributes"]]


def duplicates(documents, key, rank=lambda doc: 0):
    """Return the places of all documents but the first of each key, by rank (None last) and then by place."""
    clusters = defaultdict(list)
    for place, doc in enumerate(documents):
        if key(doc) is not None:
            clusters[key(doc)].append(((rank(doc) is None, rank(doc) or 0), place))
    return sorted(place for members in clusters.values() for _, place in sorted(members)[1:])


def test_rows_line_up_and_marks_span_the_text_in_code_points(world):
    done = dedupe(str(world), **HERE)
    rows = rows_of(world)
    assert [(row["id"], row["source"]) for row in rows] == [(doc["id"], doc["source"]) for doc in DOCUMENTS]
    spans = [{}, {}, [[0, 3, 1]], {}, [[0, 1, 1]], {}, [[0, 0, 1]], [[0, 3, 1]]]
    expected = [{"exact": span} if span else {} for span in spans]
    assert json.dumps([row["attributes"] for row in rows]) == json.dumps(expected), "integers, not floats"
    assert (done.counts["documents_in"], done.counts["duplicates"], done.counts["clusters"]) == (8, 4, 3)
    assert done.counts["text_bytes_marked"] == 5 + 1 + 0 + 5
    bars = done.plot().frame()
    assert dict(zip(bars["documents in a cluster"], bars["clusters"], strict=True)) == {"2": 2, "3": 1}
    assert dedupe(str(world), **HERE).plot() == done.plot(), "known to the journal"
    assert not (world / "_work").exists()


@pytest.mark.parametrize(
    ("by", "key"),
    [
        ("text", lambda doc: doc["text"]),
        ("id", lambda doc: (doc["source"], doc["id"])),
        ("source", lambda doc: doc["source"]),
        ("metadata.url", lambda doc: doc["metadata"].get("url")),
        ("metadata.n", lambda doc: doc["metadata"].get("n")),
        ("metadata.flag", lambda doc: doc["metadata"].get("flag")),
        ("metadata.page.hash", lambda doc: (doc["metadata"].get("page") or {}).get("hash")),
        ("metadata.page.deep.ok", lambda doc: (doc["metadata"].get("page") or {}).get("deep", {}).get("ok")),
        ("added", lambda doc: None),
    ],
)
def test_by(world, by, key):
    more = [document("1", "z", "web", n=0), document("1", "z", "else")]
    pages = [{"hash": "h1", "deep": {"ok": True}}, {"hash": "h1"}, {"hash": "h2", "deep": {"ok": True}}, None]
    more += [document(str(number), "z", page=page) for number, page in enumerate(pages)]
    write(world, {"y.jsonl.gz": more})
    documents = [*DOCUMENTS, *more]
    dedupe(str(world), by=by, **HERE)
    assert marked(world) == duplicates(documents, key)


@pytest.mark.parametrize(
    ("keep", "rank", "number"),
    [
        ("first", None, lambda doc: 0),
        ("longest", None, lambda doc: -len(doc["text"])),
        ("lowest", "metadata.n", lambda doc: doc["metadata"].get("n")),
        ("highest", "metadata.n", lambda doc: -doc["metadata"]["n"] if "n" in doc["metadata"] else None),
        (
            "highest",
            "metadata.flag",
            lambda doc: -doc["metadata"]["flag"] if "flag" in doc["metadata"] else None,
        ),
    ],
)
def test_keep(world, keep, rank, number):
    dedupe(str(world), by="source", keep=keep, rank=rank, **HERE)
    assert marked(world) == duplicates(DOCUMENTS, lambda doc: doc["source"], number)


LARGE = [1234567890123456788, 1234567890123456789]


def test_integers_are_keys_by_all_of_their_digits(tmp_path):
    numbers = [7, *LARGE, LARGE[0], 1e300, float(LARGE[0])]
    docs = [document(str(row), "t", n=row, tweet=number) for row, number in enumerate(numbers)]
    root = write(tmp_path / "v0", {"a.jsonl": [document("z", "t", n=0, tweet=-3)], "b.jsonl": docs})
    dedupe(str(root), by="metadata.tweet", **HERE)
    assert marked(root) == [4]
    dedupe(str(root), by="source", keep="lowest", rank="metadata.tweet", name="ranked", **HERE)


@pytest.mark.parametrize("wrapped", [False, True])
def test_attributes_of_64_bits_are_keys(tmp_path, wrapped):
    values = [LARGE[0], LARGE[1], LARGE[0], 2**64 - 1, 2**64]
    root = write(tmp_path, {"a.jsonl": [document(str(row), "t") for row in range(len(values))]})
    rows = [
        {"id": str(row), "source": "s", "attributes": {"hash": [[0, 1, value]] if wrapped else value}}
        for row, value in enumerate(values)
    ]
    write_lines(root / "attributes/h/a.jsonl", list(map(json.dumps, rows)))
    dedupe(str(root), by="hash", **HERE)
    assert marked(root) == [2]


def test_too_many_sources_make_no_table(tmp_path):
    docs = [document(str(row), f"text {row // 2}", f"source {row}") for row in range(201)]
    for name, shards in (("one", {"a.jsonl": docs}), ("two", {"a.jsonl": docs[:100], "b.jsonl": docs[100:]})):
        done = dedupe(str(write(tmp_path / name, shards)), **HERE)
        assert (done.sources, done.counts["duplicates"]) == ((), 100)
        assert any("more than 200 sources" in note for note in done.notes)


class Chunks:
    """Stands for the records of a shard."""

    def __init__(self, chunks):
        self.chunks = chunks

    def chunks_of_shard(self, number):
        return iter(self.chunks)


@pytest.mark.slow
def test_records_of_a_shard_with_many_duplicates_are_not_held():
    draw = np.random.default_rng(1)
    count = 400_000
    found = np.zeros(count, FLAGS)
    rows = np.sort(draw.choice(2 * count, count, replace=False))
    found["location"] = rows + (5 << 32)
    found["size"] = draw.integers(0, 3, count)
    known = dict(zip(rows.tolist(), found["size"].tolist(), strict=True))
    names, sizes = pa.array(["s"] * 1000, pa.large_string()), np.ones(1000, np.int64)
    chunks = (found[first : first + 3000].copy() for first in range(0, count, 3000))
    tracemalloc.start()
    cursor = ShardCursor(Chunks(chunks), 5)
    for first in range(0, 2 * count, 1000):
        beside = cursor.beside(FlagRows(first, names, names, sizes, sizes, {}))
        rows = [row for row in range(first, first + 1000) if row in known]
        assert (beside.at + first).tolist() == rows
        assert beside.records["size"].tolist() == [known[row] for row in rows]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cursor.is_done
    assert peak < 1_000_000  # the records are 6.4 MB


@pytest.mark.slow
def test_attributes_decide(world):
    dk.tag(str(world), ["char_length_v1"], **HERE)
    dedupe(str(world), by="length", keep="highest", rank="metadata.n", name="same_length", **HERE)
    number = [-doc["metadata"]["n"] if "n" in doc["metadata"] else None for doc in DOCUMENTS]
    documents = list(enumerate(DOCUMENTS))
    expected = duplicates(documents, lambda doc: len(doc[1]["text"]), lambda doc: number[doc[0]])
    assert marked(world, "same_length") == expected
    dedupe(str(world), by="source", keep="lowest", rank="length", name="shortest", **HERE)
    expected = duplicates(DOCUMENTS, lambda doc: doc["source"], lambda doc: len(doc["text"]))
    assert marked(world, "shortest") == expected


@pytest.mark.slow
def test_any_texts_in_any_shards_equal_a_dictionary(tmp_path):
    draw = random.Random(11)
    texts = ["", " ", "a", "á", "á", "日本", "👩‍👧", "\u0000", "x" * 300, "x" * 301, '"\\\n']
    for number in range(8):
        shards = {
            f"{name}.jsonl.gz": [document(f"{row}", draw.choice(texts)) for row in range(draw.randrange(30))]
            for name in "abc"
        }
        root = write(tmp_path / str(number), shards)
        dedupe(str(root), **HERE)
        documents = [doc for docs in shards.values() for doc in docs]
        assert marked(root) == duplicates(documents, lambda doc: doc["text"])


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize(("limit", "value"), [("BYTES", 1), ("SHARDS", 1), ("BYTES", 10**9)])
def test_same_bytes_however_shards_are_grouped(world, tmp_path, monkeypatch, scheduler, limit, value):
    other = write(tmp_path / "other", SHARDS)
    dedupe(str(other), keep="longest", by="source", **HERE)
    monkeypatch.setattr(exchange_job, f"GROUP_{limit}", value)
    dedupe(str(world), keep="longest", by="source", scheduler=scheduler, workers=2, progress=False)
    assert outputs(world) == outputs(other)


def test_stopped_while_marks_are_written(world):
    expected = outputs(dedupe_elsewhere(world))
    stopped = failing(DuplicateOutput, at=lambda unit: "/x/" in unit.name, method="open")
    with stopped, pytest.raises(InterruptedStageError):
        dedupe(str(world), **HERE)
    assert list(outputs(world)) == ["a.jsonl.gz"]
    with failing(KeyEmitter, method="emit"):  # shards are not read again
        done = dedupe(str(world), **HERE)
    assert (done.done, done.skipped) == (1, 1)
    assert outputs(world) == expected
    assert not (world / "_work").exists()
    assert not list(world.rglob(".*"))


def dedupe_elsewhere(world):
    other = world.parent / "other"
    shutil.copytree(world / "documents", other / "documents")
    dedupe(str(other), **HERE)
    return other


@pytest.mark.parametrize("file_format", ["jsonl.zst", "jsonl", "parquet"])
def test_mix_drops_what_is_marked(world, file_format):
    dedupe(str(world), format=file_format, **HERE)
    assert (world / f"attributes/exact/x/b.{file_format}").exists()
    kept = dk.mix(str(world), to=str(world.parent / "v1"), where="exact is None", **HERE)
    assert kept.counts["documents_out"] == 4
    assert not [note for note in kept.notes if "unproved" in note]


@pytest.mark.parametrize("score", ["1", "1.0"])
def test_flags_as_the_toolkit_and_as_earlier_versions_wrote_them_mean_the_same(tmp_path, world, score):
    """Also where both kinds lie side by side in one set."""
    dedupe(str(world), **HERE)
    for path in outputs(world):
        lines = read_lines(world / "attributes/exact" / path)
        theirs = [line.replace(",1]]", f",{score}]]") for line in lines] if path.startswith("a") else lines
        write_lines(world / "attributes/own" / path, [line.replace('"exact"', '"own"') for line in theirs])
    rules = ["own is None", ~dk.duplicates("own"), "not (own == 1)", "not (own >= 1.0)"]
    filters = [f"@.own && @.own[0] && @.own[0][2] {rule}" for rule in (">= 1", ">= 1.0", "> 0.5", "== 1")]
    for number, rule in enumerate(rules):
        done = dk.mix(str(world), to=str(tmp_path / f"w{number}"), where=rule, **HERE)
        assert done.counts["documents_out"] == 4, rule
    for number, rule in enumerate(filters):
        done = dk.mix(
            str(world), to=str(tmp_path / f"f{number}"), exclude=[f"$.attributes[?({rule})]"], **HERE
        )
        assert done.counts["documents_out"] == 4, rule
    assert dk.read_dataframe(str(world), columns=["id"], attributes=["own"]).own.sum().compute() == 4.0


def test_a_bad_record_fails_or_keeps_its_row(tmp_path):
    lines = [json.dumps(document("1", "a")), "nonsense", json.dumps(document("2", "a"))]
    write_lines(tmp_path / "documents/a.jsonl.gz", lines)
    with pytest.raises(StageError, match=r"row 1, byte \d+: invalid json"):
        dedupe(str(tmp_path), **HERE)
    done = dedupe(str(tmp_path), on_bad_record="quarantine", **HERE)
    assert (done.exit_status, done.counts["bad_records"]) == (1, 1)
    first, bad, last = rows_of(tmp_path)
    assert (first["attributes"], last["attributes"]) == ({}, {"exact": [[0, 1, 1]]})
    assert (bad["id"], bad["attributes"]) == (None, {})
    assert "invalid_json" in bad["error"]
    (quarantined,) = read_lines(tmp_path / "_quarantine/dedupe/a.jsonl.gz.jsonl")
    assert json.loads(quarantined)["row"] == 1
    assert dedupe(str(tmp_path), on_bad_record="quarantine", **HERE).exit_status == 1


def test_stale_marks_are_refused_unless_they_depend_on_ids_alone(world):
    dedupe(str(world), **HERE)
    dedupe(str(world), by="id", name="ids", **HERE)
    changed = [{**doc, "text": doc["text"] + "!"} for doc in SHARDS["a.jsonl.gz"]]
    write(world, {"a.jsonl.gz": changed})
    with pytest.raises(StaleAttributesError, match="stale"):
        dk.mix(str(world), to=str(world.parent / "v1"), where="exact is None", **HERE)
    kept = dk.mix(str(world), to=str(world.parent / "v2"), where="ids is None", **HERE)
    assert kept.counts["documents_out"] == 8 - len(
        duplicates(DOCUMENTS, lambda doc: (doc["source"], doc["id"]))
    )


def test_summary_tells_by_source_and_the_largest_clusters(world):
    done = dedupe(str(world), **HERE)
    told = done.to_json()
    assert told["sources"] == [
        {
            "source": "books",
            "documents": 4,
            "duplicates": 2,
            "text_bytes_marked": 5,
            "clusters": 1,
            "largest": 2,
        },
        {
            "source": "web",
            "documents": 4,
            "duplicates": 2,
            "text_bytes_marked": 6,
            "clusters": 2,
            "largest": 3,
        },
    ]
    assert told["clusters"] == [
        {"size": 3, "id": "1", "source": "web", "shard": "a.jsonl.gz", "row": 0},
        {"size": 2, "id": "2", "source": "books", "shard": "a.jsonl.gz", "row": 1},
        {"size": 2, "id": "4", "source": "web", "shard": "a.jsonl.gz", "row": 3},
    ]
    json.dumps(told)
    assert Fact("largest cluster", "3 documents") in done.facts()
    assert "survivor  documents" in str(done)
    assert done._repr_html_().count("<table>") == 3
    again = dedupe(str(world), **HERE)
    assert (again.done, again.sources, again.clusters) == (0, done.sources, done.clusters)


def test_what_is_refused(world):
    dk.tag(str(world), ["char_length_v1", "gopher_v2"], **HERE)
    for arguments, message in (
        ({"prune": 1}, "all shards"),
        ({"keep": "highest"}, "expected a rank"),
        ({"rank": "length"}, "expected a rank"),
        ({"keep": "last"}, "expected one of first"),
        ({"how": "near"}, "expected one of exact, fuzzy"),
        ({"shuffle": "air"}, "expected 'files' or 'dask'"),
        ({"by": None}, "by=None; expected the name of a column"),
        ({"by": ["id", "text"]}, "expected the name of a column"),
        ({"keep": "highest", "rank": 3}, "rank=3; expected the name of a column"),
        ({"name": "a/b"}, "folder name"),
        ({"name": "char_length_v1"}, "not made by this command"),
        ({"name": "char_length_v1", "by": "length"}, "is read for .*length"),
        ({"keep": "lowest", "rank": "metadata.url"}, "expected a number"),
        ({"form": "parquet"}, "did you mean 'format'"),
    ):
        with pytest.raises(UsageError, match=message):
            dedupe(str(world), **{**HERE, **arguments})
    with pytest.raises(ExpressionError, match="lenth"):
        dedupe(str(world), by="lenth", **HERE)
    assert not (world / "_work").exists()
    assert "x/b.jsonl.gz" in dedupe(str(world), dry_run=True, only="x/", **HERE).planned


def test_marks_of_documents_that_are_gone_do_not_stay(world):
    dedupe(str(world), **HERE)
    (world / "documents/x/b.jsonl.gz").unlink()
    with pytest.raises(UsageError, match="--overwrite"):
        dedupe(str(world), **HERE)
    assert dedupe(str(world), overwrite=True, **HERE).counts["documents_in"] == 4
    assert list(outputs(world)) == ["a.jsonl.gz"]


def test_two_sets_live_side_by_side(world):
    dedupe(str(world), **HERE)
    dedupe(str(world), by="id", name="ids", **HERE)
    assert dedupe(str(world), **HERE).skipped == 2
    units = Journal(str(world), "dedupe").records
    assert {"attributes/exact/", "attributes/ids/"} < set(units)


def test_old_marks_are_refused_before_the_first_new_one_is_written(world):
    dedupe(str(world), **HERE)
    arguments = {"to": str(world.parent / "v1"), "where": "exact is None", **HERE}

    with failing(DuplicateOutput, method="open"), pytest.raises(InterruptedStageError):
        dedupe(str(world), keep="longest", by="source", **HERE)
    with pytest.raises(AlignmentError, match="not made by one run of `dedupe`"):
        dk.mix(str(world), **arguments)
    dedupe(str(world), **HERE)
    assert dk.mix(str(world), **arguments).counts["documents_out"] == 4
    records = dict(Journal(str(world), "dedupe").records)
    whole = records.pop("attributes/exact/")
    assert {record.key for record in records.values()} == {whole.info["key"]}
    assert whole.info["depends_on"] == "documents"
    assert [item.path for item in whole.inputs] == ["documents/a.jsonl.gz", "documents/x/b.jsonl.gz"]


def test_a_call_mends_a_record_that_does_not_say_which_marks_hold(world):
    dedupe(str(world), **HERE)
    record = msgspec.structs.replace(Journal(str(world), "dedupe").records["attributes/exact/"], info={})
    Journal(str(world), "dedupe").append(record)
    arguments = {"to": str(world.parent / "v1"), "where": "exact is None", **HERE}
    with pytest.raises(AlignmentError, match="not made by one run of `dedupe`"):
        dk.mix(str(world), **arguments)
    assert dedupe(str(world), **HERE).skipped == 2
    assert dk.mix(str(world), **arguments).counts["documents_out"] == 4


def test_marks_are_refused_when_the_shard_of_a_survivor_has_changed(world):
    dedupe(str(world), **HERE)
    write(world, {"a.jsonl.gz": [document("1", "other", "web")]})
    with pytest.raises(StaleAttributesError, match=r"a.jsonl.gz has changed"):
        dk.mix(str(world), to=str(world.parent / "v1"), where="exact is None", only="x/", **HERE)


def test_marks_of_two_runs_are_refused(tmp_path):
    """A second run that is killed while it writes leaves old and new marks side by side: both copies could be dropped."""
    for name, text in (("a", "one"), ("b", "two")):
        write_lines(tmp_path / f"v0/documents/{name}.jsonl", [json.dumps(document(name, text))])
    root, to = str(tmp_path / "v0"), str(tmp_path / "v1")
    dk.dedupe(root, **HERE)
    old = (tmp_path / "v0/attributes/exact/a.jsonl").read_bytes()
    record = Journal(root, "dedupe").records["attributes/exact/a.jsonl"]
    write_lines(tmp_path / "v0/documents/b.jsonl", [json.dumps(document("b", "one"))])
    dk.dedupe(root, keep="longest", **HERE)
    (tmp_path / "v0/attributes/exact/a.jsonl").write_bytes(old)
    writer = Journal(root, "dedupe").start({}, ["attributes/exact/"], "")
    writer.add(record)
    writer.close()
    with pytest.raises(AlignmentError, match="not made by one run of `dedupe`"):
        dk.mix(root, to=to, where="exact is None", **HERE)
    assert dk.validate(root, **HERE).found.keys() == {"two_runs"}
    dk.dedupe(root, keep="longest", **HERE)
    assert dk.mix(root, to=to, where="exact is None", **HERE).counts["documents_out"] == 1
