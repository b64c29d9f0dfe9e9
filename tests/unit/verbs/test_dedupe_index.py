"""dedupe with an index: datasets that come one after another are compared as if they came at once, and the index is only appended to."""

import itertools
import json
import random
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.dataset import datasets_below
from dolma_dask.engine.lease import leased
from dolma_dask.errors import CorruptFileError, StageError, UsageError
from dolma_dask.exchange import passes
from dolma_dask.exchange.staged import Limits
from dolma_dask.verbs.dedupe.index import exact as indexed
from dolma_dask.verbs.dedupe.index.segments import prepare

from .conftest import read_lines

HERE = {"scheduler": "synchronous", "progress": False}
WORDS = [f"w{number}" for number in range(300)]
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write three datasets with copies all over."""
    folder, draw = tmp_path_factory.mktemp("made"), random.Random(11)
    for name in NAMES:
        for shard in range(3):
            path = folder / f"{name}/documents/{shard}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(document(draw, f"{name}{shard}-{row}") for row in range(30)))
    (folder / "a/documents/empty.jsonl").write_text("")
    originals = [[draw.choice(WORDS) for _ in range(draw.randrange(30, 90))] for _ in range(40)]
    for name, shard in itertools.product(NAMES, range(2)):
        path = folder / f"near-{name}/documents/{shard}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(near_copy(draw, originals, f"{name}{shard}-{row}") for row in range(40)))
    return folder


def near_copy(draw, originals, identity):
    words = list(draw.choice(originals))[: 2 if draw.random() < 0.04 else None]
    for _ in range(draw.randrange(4)):
        words[draw.randrange(len(words))] = draw.choice(WORDS)
    metadata = {"lang": draw.choice(["en", "de"]), "score": draw.randrange(9)}
    return json.dumps({"id": identity, "source": "s", "text": " ".join(words), "metadata": metadata}) + "\n"


def document(draw, identity):
    number = draw.randrange(150)
    metadata = {"score": draw.randrange(9), "lang": draw.choice(["en", "de"]), "number": number % 20}
    text = draw.choice([f"text {number}", f"text {number}", "", f"{identity} alone 🙂"])
    return json.dumps({"id": f"{identity}", "source": "s", "text": text, "metadata": metadata}) + "\n"


@pytest.fixture
def world(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / "world"))


def add(world, dataset, **options):
    """Deduplicate a dataset with the index."""
    return dk.dedupe(str(world / dataset), **{"index": str(world / "index"), **HERE, **options})


def rows_of(root, name="exact"):
    """Return the attributes of all rows in the order of the listing."""
    paths = sorted((root / "attributes" / name).rglob("*.jsonl"), key=str)
    return [json.loads(line) for path in paths for line in read_lines(path)]


def flagged(root, name="exact"):
    return {row["id"] for row in rows_of(root, name) if any(key.endswith(name) for key in row["attributes"])}


def tree(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and "_journal" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def segments(world):
    return sorted((world / "index/segments").iterdir())


def documents(world, name):
    paths = sorted((world / name / "documents").glob("*.jsonl"))
    return [(path.name, row, json.loads(line)) for path in paths for row, line in enumerate(read_lines(path))]


NEAR = {
    "verified": {},
    "bands": {"verify": "none", "num_bands": 20, "rows_per_band": 5},
    "longest": {"keep": "longest", "similarity": 0.8},
    "chosen": {
        "within": "metadata.lang",
        "where": "metadata.score > 1",
        "keep": "highest",
        "rank": "metadata.score",
    },
}


@pytest.mark.parametrize("call", NEAR.values(), ids=NEAR)
def test_near_copies_are_those_of_what_was_kept(world, call):
    """Flags are those of a call in which what was kept of earlier datasets comes first."""
    call = {"how": "fuzzy", **call}
    add(world, "near-a", **call)
    dk.dedupe(str(world / "near-a"), **call, name="alone", **HERE)
    alone = json.loads(json.dumps(rows_of(world / "near-a", "alone")).replace("alone", "fuzzy"))
    assert rows_of(world / "near-a", "fuzzy") == alone
    dk.mix(str(world / "near-a"), to=str(world / "kept"), where="fuzzy is None", **HERE)
    add(world, "near-b", **call)
    dk.dedupe(
        str(world / "kept"),
        others=[str(world / "near-b")],
        **{**call, "keep": "first", "rank": None},
        name="both",
        **HERE,
    )
    found, both = flagged(world / "near-b", "fuzzy"), flagged(world / "near-b", "both")
    table = pq.read_table(segments(world)[1] / "merges.parquet").to_pylist()
    new = {(row["shard"], row["row"]) for row in table if row["dataset"] == "../near-b"}
    names = {(shard, row): one["id"] for shard, row, one in documents(world, "near-b")}
    joined = {names[place] for place in new}
    assert joined <= found
    if call.get("keep", "first") == "first":
        assert found == both
    else:  # another one of those that are new survives
        assert joined <= both
        assert len(found) == len(both)
    kept = {
        (shard, row)
        for shard, row, one in documents(world, "near-a")
        if one["id"] not in flagged(world / "near-a", "fuzzy")
    }
    assert {(row["old_shard"], row["old_row"]) for row in table} <= kept
    assert {(row["shard"], row["row"]) for row in table if row["dataset"] == "../near-a"} <= kept
    again = add(world, "near-b", **call)
    assert (again.done, again.index[1].known) == (0, len(joined))
    add(world, "near-c", **call)
    assert len(flagged(world / "near-c", "fuzzy")) > 10


def test_clusters_do_not_depend_on_how_keys_are_cut_into_ranges(world, monkeypatch):
    """Where edges are contracted, one between two documents of the index may be all that is left of a new one that connects them."""
    other = Path(shutil.copytree(world, world.parent / "other"))
    for place in (world, other):
        for name in ("near-a", "near-b"):
            add(place, name, how="fuzzy", **NEAR["bands"])
        monkeypatch.setitem(
            passes.reduce.__kwdefaults__, "limits", Limits(range=1500, segment=1000, chunk=300)
        )
    for path in ("attributes/fuzzy/0.jsonl", "clusters/fuzzy.parquet"):
        assert (world / "near-b" / path).read_bytes() == (other / "near-b" / path).read_bytes()
    tables = [pq.read_table(segments(place)[1] / "merges.parquet").to_pylist() for place in (world, other)]
    assert tables[0] == tables[1]
    assert any(row["dataset"] == "../near-a" for row in tables[0])


@pytest.mark.parametrize("call", ["verified", "bands", "chosen"])
def test_documents_that_are_joined_in_ranges_make_the_same_clusters(world, call):
    other = Path(shutil.copytree(world, world.parent / "other"))
    for place, merge_bytes in ((world, None), (other, 300)):
        for name in ("near-a", "near-b"):
            told = add(place, name, how="fuzzy", merge_bytes=merge_bytes, **NEAR[call])
        assert any("joined to clusters in" in note for note in told.notes) == bool(merge_bytes)
    for path in ("attributes/fuzzy/0.jsonl", "clusters/fuzzy.parquet"):
        assert (world / "near-b" / path).read_bytes() == (other / "near-b" / path).read_bytes()
    tables = [pq.read_table(segments(place)[1] / "merges.parquet").to_pylist() for place in (world, other)]
    assert tables[0] == tables[1] != []


CALLS = {
    "text": {},
    "number": {"by": "metadata.number", "within": "metadata.lang"},
    "chosen": {"where": "metadata.score > 2"},
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_flags_are_those_of_all_datasets_at_once(world, call):
    for name in NAMES:
        add(world, name, **call)
    one_by_one = [flagged(world / name) for name in NAMES]
    dk.dedupe(str(world / "a"), others=[str(world / "b"), str(world / "c")], **call, **HERE, overwrite=True)
    assert one_by_one == [flagged(world / name) for name in NAMES]
    assert all(one_by_one)


def test_one_of_equal_documents_survives_whatever_decides_among_new_ones(world):
    """Ranks are of new documents; those in the index have none, and win."""
    keeps = {"a": {"keep": "longest"}, "b": {"keep": "highest", "rank": "metadata.score"}, "c": {}}
    kept, merges = {}, {}
    for name, keep in keeps.items():
        known = dict(kept)
        add(world, name, **keep)
        for shard, row, one in documents(world, name):
            if one["id"] not in flagged(world / name):
                assert one["text"] not in kept
                kept[one["text"]] = (f"../{name}", shard, row)
            elif one["text"] in known:
                merges[f"../{name}", shard, row] = known[one["text"]]
        assert set(kept) >= {one["text"] for _, _, one in documents(world, name)}
    tables = [pq.read_table(folder / "merges.parquet").to_pylist() for folder in segments(world)]
    assert [len(table) > 0 for table in tables] == [False, True, True]
    found = [tuple(row.values()) for table in tables for row in table]
    assert {row[:3]: row[3:] for row in found} == merges
    assert found == sorted(found)


def test_a_segment_of_many_parts_and_one_of_nothing(world, monkeypatch):
    monkeypatch.setattr("dolma_dask.exchange.kept.PART_BYTES", 24 * 9)
    shutil.copytree(world / "a", world / "d")
    for name in (*NAMES, "d"):
        add(world, name)
    parts = [len(list((one / "keys").glob("*"))) for one in segments(world)]
    assert parts[0] > 4
    assert parts[3] == 0
    found = [flagged(world / name) for name in NAMES]
    assert len(flagged(world / "d")) == 90
    dk.dedupe(str(world / "a"), others=[str(world / "b"), str(world / "c")], **HERE, overwrite=True)
    assert found == [flagged(world / name) for name in NAMES]


def test_the_same_command_changes_nothing_wherever_all_is(world, tmp_path):
    for name in NAMES:
        add(world, name)
    summary = add(world, "b")
    assert (summary.done, summary.skipped) == (0, 3)
    assert [(one.dataset, one.documents) for one in summary.index] == [
        ("../a", 90),
        ("../b", 90),
        ("../c", 90),
    ]
    assert "index" in str(summary)
    place = Path(shutil.copytree(world, tmp_path / "else/where", copy_function=shutil.copyfile))
    before = tree(place)
    assert [add(place, name).done for name in NAMES] == [0, 0, 0]
    assert tree(place) == before
    assert tree(place / "index") == tree(world / "index")
    assert add(place, "b", name="other").done == 3
    shutil.rmtree(place / "b/attributes")
    assert add(place, "b").done == 3
    assert tree(place / "b/attributes") == tree(world / "b/attributes")
    assert tree(place / "index") == tree(world / "index")


def test_a_changed_dataset_is_appended_anew_unless_others_count_on_it(world):
    add(world, "a")
    add(world, "b")
    first, second = segments(world)
    path = world / "b/documents/0.jsonl"
    path.write_text(path.read_text().replace("text 1", "text 9"))
    add(world, "b")
    assert [one.name[:6] for one in segments(world)] == ["000001", "000002"]
    again = flagged(world / "b")
    add(world, "b", keep="longest")
    assert [one.name[:6] for one in segments(world)] == ["000001", "000002"]
    add(world, "b")
    assert flagged(world / "b") == again
    before = tree(world)
    with pytest.raises(
        UsageError, match=r"a is in the index .* with other options.* 1 dataset appended after it"
    ):
        add(world, "a", keep="longest")
    assert tree(world) == before
    path = world / "a/documents/0.jsonl"
    path.write_text(path.read_text().replace("text 1", "text 9"))  # of the same size
    with pytest.raises(UsageError, match=r"a has changed since the index"):
        add(world, "a")
    assert tree(world / "index") == {
        path[6:]: data for path, data in before.items() if path.startswith("index/")
    }
    add(world, "c")
    assert second not in segments(world)
    assert first in segments(world)


def test_a_dataset_is_not_compared_with_itself_wherever_it_is(world):
    """It is known by its place, by its flags, or by its bytes; what has changed is refused or replaced."""
    add(world, "a")
    add(world, "b")
    flags, index = flagged(world / "a"), tree(world / "index")
    (world / "a").rename(world / "moved")
    assert any("has as" in note for note in add(world, "moved", name="other").notes)
    assert {one["id"] for one in rows_of(world / "moved", "other") if one["attributes"]} == flags
    (world / "link").symlink_to(world / "moved")
    assert add(world, "link").done == 0
    shutil.rmtree(world / "moved/_journal")
    shutil.rmtree(world / "moved/attributes")
    add(world, "moved")  # by its bytes
    assert flagged(world / "moved") == flags
    (world / "index").rename(world / "far")
    (world / "far").rename((world / "deep").mkdir() or world / "deep/index")
    shutil.rmtree(world / "b/_journal")
    dk.dedupe(str(world / "b"), index=str(world / "deep/index"), name="other", **HERE)
    assert len(flagged(world / "b", "other")) == len(flagged(world / "b"))
    assert tree(world / "deep/index") == index
    shards = next((world / "deep/index/segments").glob("000001*/shards.json"))
    good = shards.read_bytes()
    shards.write_bytes(good[:-1])
    dk.dedupe(str(world / "moved"), index=str(world / "deep/index"), **HERE, overwrite=True)
    assert shards.read_bytes() == good
    path = world / "moved/documents/0.jsonl"
    path.write_text(path.read_text().replace("text 1", "text 9"))
    with pytest.raises(UsageError, match=r"moved has changed since the index .* 1 dataset appended after it"):
        dk.dedupe(str(world / "moved"), index=str(world / "deep/index"), **HERE)


def test_a_copy_of_a_dataset_that_is_still_there_is_all_duplicates(world):
    add(world, "a")
    shutil.copytree(world / "a", world / "d", copy_function=shutil.copy2)
    summary = add(world, "d")
    assert len(flagged(world / "d")) == 90
    assert any(re.search(r"nothing is left .* from .*/a\. Is it a copy", note) for note in summary.notes)
    assert [(one.dataset, one.kept) for one in summary.index][1:] == [("../d", 0)]
    (world / "d/documents/0.jsonl").write_text(document(random.Random(1), "d"))
    assert [one.dataset for one in add(world, "d").index] == ["../a", "../d"]


def test_nothing_is_appended_of_a_run_with_too_many_bad_rows(world):
    add(world, "a")
    before = tree(world / "index")
    with (world / "b/documents/0.jsonl").open("a") as file:
        file.write("{bad\n" * 5)
    call = {"on_bad_record": "quarantine"}
    summary = add(world, "b", **call, max_bad_fraction=0.01)
    assert any("nothing was appended" in note for note in summary.notes)
    assert summary.exit_status == 1
    assert tree(world / "index") == before
    assert add(world, "b", **call, max_bad_fraction=0.1).index[1].documents == 90


def test_what_is_not_of_an_index_is_neither_read_nor_removed(world):
    strange = world / "audio/segments/speaker/x.wav"
    strange.parent.mkdir(parents=True)
    strange.write_text("precious")
    (world / "files").mkdir()
    (world / "files/mine.txt").write_text("precious")
    before = tree(world)
    for place in ("audio", "files", "a"):
        with pytest.raises(UsageError, match=r"is no index|lies in the dataset"):
            add(world, "b", index=str(world / place))
    for place in ("documents/x", "attributes", "_work", "_journal/x", "signatures", "clusters", "x"):
        with pytest.raises(UsageError, match="lies in the dataset"):
            add(world, "b", index=str(world / "b" / place))
    with pytest.raises(UsageError, match="expected the folder or URL"):
        add(world, "b", index="")
    assert tree(world) == before
    (world / "index/segments/mine").mkdir(parents=True)
    add(world, "b")
    assert (world / "index/segments/mine").exists()


def test_what_a_killed_run_has_not_removed_is_removed_by_the_next(world):
    for name in ("a", "b"):
        add(world, name)
    before, old = tree(world / "index"), world / "index/segments" / f"000002-{'0' * 16}/keys/000000.keys"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    assert add(world, "b").done == 0
    assert tree(world / "index") == before


REFUSED = {
    "by": ({"by": "id"}, r"by 'text', now 'id'"),
    "within": ({"within": "metadata.lang"}, "within"),
    "others": ({"others": ["c"]}, "others with index"),
    "shuffle": ({"shuffle": "dask"}, "shuffle with index"),
    "audit": ({"how": "fuzzy", "audit": True}, "audit with index"),
    "only": ({"only": ["0*"]}, "expected all shards"),
    "ngrams": ({"how": "fuzzy", "verify": "ngrams"}, "verify with index"),
    "how": ({"how": "fuzzy"}, "how 'exact', now 'fuzzy'; expected"),
}


def test_what_cannot_be_compared_is_refused(world):
    add(world, "a")
    before = tree(world)
    for options, message in REFUSED.values():
        with pytest.raises(UsageError, match=message):
            add(world, "b", **options)
    for place in ("b", "b/documents", "a/attributes"):
        with pytest.raises(UsageError, match=r"folder of its own|is no index|lies in the dataset"):
            dk.dedupe(str(world / "b"), index=str(world / place), **HERE)
    assert dk.dedupe(str(world / "b"), index=str(world / "new"), dry_run=True, **HERE).planned
    assert tree(world) == before


def test_an_index_is_shown_as_what_it_is(world):
    for name in ("near-a", "near-b"):
        index = add(world, name, how="fuzzy").index
    shown = dk.status(str(world / "index"))
    assert shown.index == index
    assert (shown.exit_status, sum(one.bytes for one in index)) == (0, shown.bytes)
    assert shown.bytes == sum(map(len, tree(world / "index").values()))
    assert "../near-b" in str(shown)
    with pytest.raises(UsageError, match=r"is an index of dedupe: dolma-dask status .*index tells"):
        dk.validate(str(world / "index"), **HERE)
    assert not any("index" in path for path in datasets_below(str(world)))


def test_a_second_run_waits_for_its_turn(world):
    add(world, "a")
    with leased(str(world / "index/_work/segments"), "dedupe"), pytest.raises(UsageError, match="works in"):
        add(world, "b")
    assert add(world, "b").done == 3
    assert not (world / "index/_work").exists()


DAMAGES = [
    ("keys/000000.keys", "changed"),
    ("keys/000000.keys", "cut"),
    ("shards.json", "changed"),
    ("segment.json", "changed"),
    ("segment.json", "gone"),
    ("documents/000000.parquet", "changed"),
    ("documents/000000.parquet", "gone"),
]


def test_a_run_that_has_lost_its_lease_appends_nothing(world, monkeypatch):
    monkeypatch.setattr("dolma_dask.verbs.dedupe.verb.lease_of", lambda *_, **__: nullcontext())

    def meanwhile(*given):
        monkeypatch.setattr(indexed, "prepare", prepare)
        add(world, "a")
        prepare(*given)

    monkeypatch.setattr(indexed, "prepare", meanwhile)
    with pytest.raises(UsageError, match="another run has appended 000001"):
        add(world, "b")
    assert [one.dataset for one in add(world, "b").index] == ["../a", "../b"]
    assert not {
        one["text"] for _, _, one in documents(world, "b") if one["id"] not in flagged(world / "b")
    } & {one["text"] for _, _, one in documents(world, "a")}


@pytest.mark.parametrize(("file", "way"), DAMAGES)
def test_a_damaged_segment_is_refused_and_made_again(world, file, way):
    call = {"how": "fuzzy"} if file.endswith(".parquet") else {}
    first, second = ("near-a", "near-b") if call else ("a", "b")
    add(world, first, **call)
    path = segments(world)[0] / file
    good = path.read_bytes()
    middle = good[: len(good) // 3] + bytes([good[len(good) // 3] ^ 1]) + good[len(good) // 3 + 1 :]
    bad = {"changed": middle, "cut": good[:-9], "gone": None}[way]
    path.unlink() if bad is None else path.write_bytes(bad)
    if file == "segment.json" and way == "gone":  # it was never finished
        assert add(world, second, **call).index[0].dataset == f"../{second}"
        return
    with pytest.raises((CorruptFileError, StageError), match=rf"{re.escape(file)}.* is damaged.*new index"):
        add(world, second, **call)
    assert (path.read_bytes() if path.exists() else None) == bad
    if file != "segment.json":
        add(world, first, **call, overwrite=True)
        assert path.read_bytes() == good
        add(world, second, **call)


def test_an_index_without_a_segment_is_refused(world):
    for name in NAMES:
        add(world, name)
    shutil.copytree(segments(world)[1], world / "kept")
    shutil.rmtree(segments(world)[1])
    with pytest.raises(CorruptFileError, match=r"is gone, with which 000003"):
        add(world, "c")
