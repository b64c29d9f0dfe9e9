"""dedupe of several datasets in one call: the flags of one dataset of all documents, each dataset proved by the others, and going on after anything."""

import itertools
import json
import random
import re
import shutil
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    DolmaDaskError,
    InterruptedStageError,
    StaleAttributesError,
    UsageError,
)
from dolma_dask.journal import Journal
from dolma_dask.verbs.dedupe.flags import DuplicateOutput
from dolma_dask.verbs.dedupe.fuzzy.clusters import ClusterOutput
from dolma_dask.verbs.dedupe.job import Deduplication

from .conftest import failing, read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
WORDS = [f"w{number}" for number in range(300)]
NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write three datasets with shards of the same names and near copies all over, and one dataset that holds them all."""
    folder, draw = tmp_path_factory.mktemp("made"), random.Random(11)
    texts = []
    for _ in range(25):
        original = [draw.choice(WORDS) for _ in range(draw.randrange(30, 90))]
        for changes in range(draw.randrange(1, 7)):
            words = list(original)
            for _ in range(changes // 2):
                words[draw.randrange(len(words))] = "other"
            texts.append(" ".join(words))
    draw.shuffle(texts)
    for number, text in enumerate(texts):
        document = {"id": f"d{number // 2}", "source": f"s{number % 2}", "text": text}
        document["metadata"] = {"score": draw.randrange(9), "lang": draw.choice(["en", "de"])}
        place = draw.choice(NAMES), f"{draw.randrange(2)}.jsonl"
        for path in (folder / place[0] / "documents" / place[1], folder / "all/documents" / "/".join(place)):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(document) + "\n")
    return folder


@pytest.fixture
def world(made, tmp_path):
    shutil.copytree(made, tmp_path / "world")
    return tmp_path / "world"


def together(world, *names, **options):
    """Deduplicate datasets in one call."""
    first, *others = (str(world / name) for name in names or NAMES)
    return dk.dedupe(first, others=others, **{**HERE, **options})


def flags(root, name):
    """Return the attributes of all rows in the order of the listing."""
    paths = sorted((root / "attributes" / name).rglob("*.jsonl"), key=str)
    return [json.loads(line) for path in paths for line in read_lines(path)]


def written(world):
    """Return all that a call has written, journals left out."""
    return {
        str(path.relative_to(world)): path.read_bytes()
        for name in NAMES
        for folder in ("attributes", "clusters", "signatures", "_work")
        for path in (world / name / folder).rglob("*")
        if path.is_file()
    }


def read(world, name, key="exact"):
    return len(
        dk.read_dataframe(str(world / name), ["id"], attributes=[key]).compute(scheduler="synchronous")
    )


def after(files):
    """Return what tells whether so many files of flags were begun before."""
    begun = itertools.count()
    return lambda unit: next(begun) >= files


OUTPUTS = {"exact": DuplicateOutput, "fuzzy": ClusterOutput}
CALLS = {
    "exact": {},
    "longest": {"keep": "longest"},
    "by": {"by": "metadata.lang", "rank": "metadata.score", "keep": "highest"},
    "chosen": {"where": "metadata.score > 2", "within": "metadata.lang"},
    "fuzzy": {"how": "fuzzy"},
    "bands": {"how": "fuzzy", "verify": "none", "num_bands": 20, "rows_per_band": 5, "keep": "longest"},
    "ngrams": {"how": "fuzzy", "verify": "ngrams"},
    "choice": {
        "how": "fuzzy", "where": "metadata.score > 2", "within": "metadata.lang", "keep": "highest", "rank": "metadata.score",
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_flags_are_those_of_one_dataset_of_all_documents(world, call):
    summary = together(world, **call, name="same")
    whole = dk.dedupe(str(world / "all"), **call, name="same", **HERE)
    rows = [row for name in NAMES for row in flags(world / name, "same")]
    assert rows == flags(world / "all", "same")
    assert 0 < whole.counts["duplicates"] == summary.counts["duplicates"]
    assert (summary.counts, summary.sources) == (whole.counts, whole.sources)
    assert (summary.done, summary.skipped, summary.beside) == (6, 0, (str(world / "b"), str(world / "c")))
    sizes = [(one.size, one.id, one.row, one.similarity) for one in summary.clusters]
    assert sizes == [(one.size, one.id, one.row, one.similarity) for one in whole.clusters]
    assert {one.dataset for one in summary.clusters} <= {".", "../b", "../c"}
    assert summary.sizes == whole.sizes
    assert sum(summary.sizes) == whole.counts["clusters"] > 0


@pytest.mark.slow
def test_the_table_tells_which_dataset_each_member_is_in(world):
    together(world, how="fuzzy")
    dk.dedupe(str(world / "all"), how="fuzzy", **HERE)
    rows = pq.read_table(world / "a/clusters/fuzzy.parquet").to_pylist()
    whole = pq.read_table(world / "all/clusters/fuzzy.parquet").to_pylist()
    folder = {".": "a", "../b": "b", "../c": "c"}
    for row in rows:
        for column in ("", "cluster_"):
            shard, dataset = row[f"{column}shard"], folder[row.pop(f"{column}dataset")]
            row[f"{column}shard"] = f"{dataset}/{shard}"
    assert rows == whole
    assert not (world / "b/clusters").exists()


@pytest.mark.slow
def test_nothing_is_done_twice_wherever_the_datasets_are_moved_to(world, tmp_path):
    together(world, how="fuzzy")
    shutil.copytree(world, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(world)
    before = written(tmp_path / "copy")
    summary = together(tmp_path / "copy", how="fuzzy")
    assert (summary.done, summary.skipped) == (0, 6)
    assert written(tmp_path / "copy") == before
    assert read(tmp_path / "copy", "b", "fuzzy")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
@pytest.mark.parametrize("lost", ["b/attributes/{}/1.jsonl", "a/attributes/{}/0.jsonl"])
def test_what_is_gone_is_made_again(world, how, lost):
    together(world, how=how)
    before = written(world)
    (world / lost.format(how)).unlink()
    assert together(world, how=how).done > 0
    assert written(world) == before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_options_and_overwrite_are_for_all_datasets(world, how):
    together(world, how=how)
    before = written(world)
    assert together(world, how=how, overwrite=True).done == 6
    assert written(world) == before
    together(world, how=how, keep="longest")
    assert {len(read_keys(world, name, how)) for name in NAMES} == {1}
    assert read_keys(world, "a", how) == read_keys(world, "c", how)


def read_keys(world, name, how):
    """Return the keys of the flags that count in a dataset."""
    records = Journal(str(world / name), "dedupe").records
    return {records[f"attributes/{how}/"].info["call"]}


def add_a_document(world):
    write_lines(world / "a/documents/2.jsonl", [json.dumps({"id": "new", "source": "s", "text": "new"})])


def change_a_document(world):
    path = world / "a/documents/0.jsonl"
    path.write_text(path.read_text().replace("w1", "v1", 1))


def remove_a_dataset(world):
    shutil.rmtree(world / "a")


def deduplicate_one_again(world):
    dk.dedupe(str(world / "a"), **HERE)


CHANGES = {
    add_a_document: r"where documents/2\.jsonl is new, one of 1",
    change_a_document: r"where documents/0\.jsonl has changed",
    remove_a_dataset: "where no documents are any more",
    deduplicate_one_again: "where attribute set exact is gone or of another run",
}


@pytest.mark.parametrize(("change", "words"), CHANGES.items(), ids=[one.__name__ for one in CHANGES])
def test_flags_are_stale_when_another_dataset_has_changed(world, change, words):
    together(world)
    assert read(world, "b")
    change(world)
    with pytest.raises(
        StaleAttributesError, match=f"made together with that of ../a, seen from .*/b, {words}"
    ):
        read(world, "b")
    dk.dedupe(str(world / "b"), **HERE)
    assert read(world, "b"), "alone it depends on no other"


@pytest.mark.slow
def move_another_into_its_place(world):
    shutil.rmtree(world / "a")
    shutil.copytree(world / "b", world / "a")


def exchange_their_places(world):
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        shutil.move(world / old, world / new)


@pytest.mark.parametrize("change", [move_another_into_its_place, exchange_their_places])
def test_another_dataset_does_not_pass_for_one_that_is_gone(world, change):
    together(world, "a", "b")
    change(world)
    with pytest.raises(StaleAttributesError, match="of another run"):
        read(world, "b")
    with pytest.raises(StaleAttributesError, match="of another run"):
        read(world, "a")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_equal_datasets_in_another_order_have_other_flags(world, how):
    shutil.rmtree(world / "b")
    shutil.copytree(world / "a", world / "b")
    together(world, "a", "b", how=how)
    with failing(OUTPUTS[how], at=after(3), method="open"), pytest.raises(InterruptedStageError):
        together(world, "a", "b", how=how, overwrite=True)
    together(world, "b", "a", how=how)
    kept = [flags(world / name, how) for name in ("a", "b")]
    assert all(how in row["attributes"] for row in kept[0])
    assert any(how not in row["attributes"] for row in kept[1])
    if how == "fuzzy":
        assert not (world / "a/clusters/fuzzy.parquet").exists()


def test_a_dataset_that_was_moved_is_found_by_the_next_call(world):
    together(world, "a", "b")
    (world / "other").mkdir()
    shutil.move(world / "b", world / "other/b")
    with pytest.raises(StaleAttributesError):
        read(world, "a")
    together(world, "a", "other/b")
    assert read(world, "a")
    assert read(world, "other/b")


def test_validate_says_what_has_changed_elsewhere(world):
    together(world, "a", "b")
    add_a_document(world)
    summary = dk.validate(str(world / "b"), **HERE)
    assert "made together with" in str(summary)
    assert summary.exit_status == 1


def test_a_cluster_of_stale_flags_is_not_shown(world):
    together(world, "a", "b", how="fuzzy")
    row = pq.read_table(world / "a/clusters/fuzzy.parquet").to_pylist()[0]
    dk.dedupe(str(world / "a"), how="fuzzy", **HERE)
    with pytest.raises(StaleAttributesError, match="made together with"):
        dk.show_cluster(str(world / "b"), row["id"])


def test_shards_whose_names_could_be_those_of_another_dataset(world):
    (world / "a/documents/1").mkdir()
    shutil.move(world / "a/documents/0.jsonl", world / "a/documents/1/0.jsonl")
    for name in ("a", "b"):  # one shard each: its task has the shard's name
        (world / name / "documents/1.jsonl").unlink()
    assert together(world, "a", "b").done == 2
    assert together(world, "a", "b", how="fuzzy").done == 2


def test_mix_says_that_sets_of_other_orders_may_drop_all_copies(world, tmp_path):
    together(world, "a", "b")
    together(world, "b", "a", how="fuzzy")
    summary = dk.mix(
        str(world / "a"), to=str(tmp_path / "v1"), where="exact is None and fuzzy is None", **HERE
    )
    assert any("chose their survivors each by itself" in note for note in summary.notes)


def test_a_change_in_one_dataset_makes_the_flags_of_all_anew(world):
    together(world)
    add_a_document(world)
    assert together(world).done == 7
    assert read(world, "a") == len(flags(world / "a", "exact"))
    assert read(world, "c")


def test_a_rehearsal_says_that_the_flags_of_all_are_made_anew(world):
    together(world)
    assert together(world, dry_run=True).planned == ()
    change_a_document(world)
    assert len(together(world, dry_run=True).planned) == 6
    assert len(together(world, "b", "c", dry_run=True).planned) == 4, "another call"


@pytest.mark.slow
def test_flags_of_an_earlier_call_in_one_dataset_are_not_believed(world):
    together(world, "a", "b")
    shutil.copytree(world / "b", world / "earlier")
    change_a_document(world)
    together(world, "a", "b")
    expected = written(world)
    shutil.rmtree(world / "b")
    shutil.move(world / "earlier", world / "b")
    assert together(world, "a", "b").done == 2
    assert written(world) == expected


@contextmanager
def only_one_announcement(monkeypatch):
    """Stop where the second dataset is about to be told which flags hold."""
    announce = Deduplication.announce

    def announce_one(self, *given, **described):
        yield next(announce(self, *given, **described))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Deduplication, "announce", announce_one)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
@pytest.mark.parametrize("at", ["first flag", "second announcement", "last dataset"])
def test_a_run_that_was_stopped_goes_on(world, monkeypatch, how, at):
    together(world, how=how)
    expected = written(world)
    for name in NAMES:
        for folder in ("attributes", "clusters", "signatures", "_journal"):
            shutil.rmtree(world / name / folder, ignore_errors=True)
    together(world, how=how, keep="longest")  # flags of old
    stopped = {
        "first flag": failing(OUTPUTS[how], method="open"),
        "second announcement": only_one_announcement(monkeypatch),
        "last dataset": failing(OUTPUTS[how], at=after(3), method="open"),
    }[at]
    with stopped, pytest.raises((KeyboardInterrupt, InterruptedStageError)):
        together(world, how=how)
    for name in NAMES[2 if at == "last dataset" else 1 :]:
        with pytest.raises((AlignmentError, StaleAttributesError)):
            read(world, name, how)
    together(world, how=how)
    assert written(world) == expected
    assert read(world, "b", how)


@pytest.mark.parametrize(
    "datasets", [5, ["../a", 3], {"a": 1}, [["../a", "k"]], [[".", "k"]] * 2, [["../a", "k"]] * 5000]
)
def test_a_damaged_record_is_no_proof(world, datasets):
    together(world)
    journal = Journal(str(world / "b"), "dedupe")
    record = journal.records["attributes/exact/"]
    journal.append(msgspec.structs.replace(record, info={**record.info, "datasets": datasets}))
    with pytest.raises(AlignmentError, match="does not name the datasets"):
        read(world, "b")


def test_a_cluster_is_shown_from_any_of_its_datasets(world):
    together(world, how="fuzzy")
    rows = pq.read_table(world / "a/clusters/fuzzy.parquet").to_pylist()
    texts = {}
    for name in NAMES:
        for path in (world / name / "documents").iterdir():
            for row, line in enumerate(read_lines(path)):
                texts[name, path.name, row] = json.loads(line)["text"]
    clusters = {}
    for row in rows:
        clusters.setdefault((row["cluster_dataset"], row["cluster_shard"], row["cluster_row"]), []).append(
            row
        )
    spread = next(
        one for one in clusters.values() if {row["dataset"] for row in one} == {".", "../b", "../c"}
    )
    for row in spread:
        name = {".": "a"}.get(row["dataset"], row["dataset"][3:])
        shown = dk.show_cluster(str(world / name), row["id"], of_source=row["source"], most=20)
        assert shown.size == len(spread)
        places = {(world / name / one.dataset).resolve().name for one in shown.members}
        assert places == set(NAMES)
        first = shown.members[0]
        original = "".join(piece.text for piece in first.pieces)
        assert original == texts[(world / name / first.dataset).resolve().name, first.shard, first.row]


@pytest.mark.parametrize("change", ["columns", "missing", "dataset"])
def test_a_table_that_dedupe_did_not_write_is_refused(world, change):
    together(world, "a", "b", how="fuzzy")
    path = world / "a/clusters/fuzzy.parquet"
    table = pq.read_table(path)
    row = next(row for row in table.to_pylist() if row["dataset"] == ".")
    if change == "columns":
        table = table.drop_columns(["dataset"])
    else:
        named = [None if change == "missing" else "../../x"] * len(table)
        table = table.set_column(10, "dataset", pa.array(named, pa.large_string()))
    pq.write_table(table, path)
    with pytest.raises(DolmaDaskError, match=r"not the table|names the dataset|in no cluster"):
        dk.show_cluster(str(world / "a"), row["id"], of_source=row["source"])


@pytest.mark.slow
def test_the_page_of_each_dataset_shows_clusters(world, tmp_path):
    together(world, how="fuzzy")
    pages = ""
    for name in NAMES:
        dk.report(str(world / name), to=str(tmp_path / f"{name}.html"), progress=False)
        pages += (tmp_path / f"{name}.html").read_text().replace("<wbr>", "")
    assert "run dedupe again" not in pages.lower()
    assert re.search(r"copy d\d+ \(s\d\), \.\./b: \d\.jsonl row", pages)


REFUSED = {
    "twice": (("a", "b", "a"), {}, "/a was given twice"),
    "in disguise": (("a", "b/../a"), {}, "/a was given twice"),
    "inside": (("a", "a/documents/b"), {}, "in the documents of another dataset"),
    "nowhere": (("a", "nobody"), {}, "nobody"),
    "audit": (("a", "b"), {"how": "fuzzy", "audit": True}, "audit with others"),
    "column": (("a", "b"), {"by": "metadata.nothing"}, "nothing"),
}


@pytest.mark.parametrize(("names", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(world, names, options, words):
    if "a/documents/b" in names:
        shutil.copytree(world / "b", world / "a/documents/b")
    with pytest.raises(dk.errors.DolmaDaskError, match=words):
        together(world, *names, **options)
    assert not (world / "a/attributes").exists()


def test_datasets_on_stores_of_different_kinds_are_refused(world):
    dk.mix(str(world / "b"), to="memory://together/b", **HERE)
    with pytest.raises(UsageError, match="stores of different kinds"):
        dk.dedupe(str(world / "a"), others=["memory://together/b"], **HERE)


def test_columns_that_differ_are_refused(world):
    for name, key in (("a", "one"), ("b", "two")):
        tagger = dk.tagger(name=key, types={"score": "document"})(lambda text: float(len(text)))
        dk.tag(str(world / name), [tagger], **HERE)
    with pytest.raises(UsageError, match="not have the same columns of the requested names"):
        together(world, "a", "b", keep="highest", rank="score")


def test_columns_of_other_kinds_are_refused(world):
    path = world / "b/documents/0.jsonl"
    path.write_text(
        path.read_text().replace('"lang": "en"', '"lang": 1').replace('"lang": "de"', '"lang": 2')
    )
    (world / "b/documents/1.jsonl").unlink()
    with pytest.raises(UsageError, match=r"metadata\.lang; expected the same in all"):
        together(world, "a", "b", by="metadata.lang")


def test_others_alone_may_be_a_path_a_dataset_or_a_summary(world):
    mixed = dk.mix(str(world / "b"), to=str(world / "v1"), **HERE)
    for others in (str(world / "b"), world / "b", dk.open_dataset(str(world / "b")), mixed):
        assert dk.dedupe(str(world / "a"), others=others, **HERE).counts["documents_in"] > 0
    for others in (5, []):
        with pytest.raises(UsageError, match="others="):
            dk.dedupe(str(world / "a"), others=others, **HERE)
    part = dk.open_dataset(str(world / "b")).select(prune=1)
    with pytest.raises(UsageError, match="1 of 2 shards were given"):
        dk.dedupe(str(world / "a"), others=[part], **HERE)


@pytest.mark.slow
def test_datasets_in_an_object_store_know_each_other(world):
    for name in NAMES[:2]:
        dk.mix(str(world / name), to=f"memory://stored/{name}", **HERE)
    first, other = (f"memory://stored/{name}" for name in NAMES[:2])
    together(world, "a", "b", how="fuzzy")
    assert dk.dedupe(first, others=[other], how="fuzzy", **HERE).done == 4
    assert dk.dedupe(first, others=[other], how="fuzzy", **HERE).done == 0
    flagged = dk.read_dataframe(other, ["id"], attributes=["fuzzy"]).compute(scheduler="synchronous")
    local = dk.read_dataframe(str(world / "b"), ["id"], attributes=["fuzzy"]).compute(scheduler="synchronous")
    assert flagged.equals(local)
    dk.dedupe(first, how="fuzzy", **HERE)
    with pytest.raises(
        StaleAttributesError, match=r"made together with that of \.\./a, seen from memory://stored/b"
    ):
        dk.read_dataframe(other, ["id"], attributes=["fuzzy"])
