"""block: listed documents are marked, the same through memory and the exchange; entries that match nothing are told."""

import json
import os
import random
from itertools import count
from pathlib import Path

import fsspec
import pytest

import dolma_dask as dk
from dolma_dask.errors import (
    AlignmentError,
    BadRecordError,
    DataError,
    InterruptedStageError,
    StageError,
    UsageError,
)
from dolma_dask.exchange import job as exchange_job
from dolma_dask.journal import Journal
from dolma_dask.results.parts import Fact
from dolma_dask.rules.rules import listed
from dolma_dask.verbs.block import job as block_run
from dolma_dask.verbs.block import shards as block_shards
from dolma_dask.verbs.block import verb
from dolma_dask.verbs.block.shards import ListedOutput, ListEmitter, MatchedEntries
from dolma_dask.verbs.block.verb import block

from .conftest import failing, read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}

SHARDS = {
    "a.jsonl.gz": [("1", "web", "été"), ("2", "books", "b"), ("3", "web", "")],
    "empty.jsonl.gz": [],
    "x/b.jsonl.gz": [("1", "books", "b"), ("2", "web", "日本"), ("4", "web", "x"), ("1", "web", "again")],
}
DOCUMENTS = [doc for docs in SHARDS.values() for doc in docs]
LIST = ["1", "web\t2", "nobody", "books\t3", "1", "books\t1", "web\tnobody"]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    for name, docs in SHARDS.items():
        lines = [json.dumps({"id": id_, "source": source, "text": text}) for id_, source, text in docs]
        write_lines(tmp_path / "v0/documents" / name, lines)
    write_lines(tmp_path / "takedown.txt", LIST)
    return tmp_path / "v0"


def outputs(root, name="takedown"):
    folder = root / "attributes" / name
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*"))}


def marks_of(root, name="takedown"):
    folder = root / "attributes" / name
    rows = [json.loads(line) for path in outputs(root, name) for line in read_lines(folder / path)]
    return [row["attributes"].get(name) for row in rows]


def expected_marks(entries=LIST):
    return [
        [[0, len(text), 1]] if {id_, f"{source}\t{id_}"} & set(entries) else None
        for id_, source, text in DOCUMENTS
    ]


def unmatched(root, name="takedown"):
    return [json.loads(line) for line in read_lines(root / f"_quarantine/block/{name}.unmatched.jsonl")]


@pytest.mark.parametrize("exchange", [False, True])
def test_listed_documents_are_marked_and_unmatched_entries_are_told(world, exchange):
    done = block(str(world), str(world.parent / "takedown.txt"), exchange=exchange, **HERE)
    assert marks_of(world) == expected_marks()
    assert done.counts["listed"] == 4
    assert done.counts["text_bytes_listed"] == 5 + 1 + 6 + 5
    assert (done.entries, done.repeated, done.unmatched) == (7, 1, 3)
    assert unmatched(world) == [
        {"id": "nobody", "line": 3},
        {"id": "3", "source": "books", "line": 4},
        {"id": "nobody", "source": "web", "line": 7},
    ]
    assert done.examples == ("nobody", "books\t3", "web\tnobody")
    assert Fact("matching nothing", 3, "integer") in done.facts()
    assert done.to_json()["unmatched_file"] == "_quarantine/block/takedown.unmatched.jsonl"
    assert done.exit_status == 0
    assert not (world / "_work").exists()
    assert not list(world.rglob(".*"))


@pytest.mark.slow
def test_memory_and_exchange_agree_on_any_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(block_shards, "ENTRIES_PER_SHARD", 16)
    monkeypatch.setattr(block_run, "ENTRIES_PER_SHARD", 16)
    monkeypatch.setattr(exchange_job, "GROUP_BYTES", 1)
    draw = random.Random(3)
    for number in range(6):
        root = tmp_path / str(number)
        docs = [(str(draw.randrange(60)), draw.choice("ab")) for _ in range(80)]
        for part in range(3):
            lines = [json.dumps({"id": i, "source": s, "text": i * 3}) for i, s in docs[part::3]]
            write_lines(root / f"documents/{part}.jsonl", lines)
        count = draw.randrange(80)
        entries = [draw.choice(("", "a\t", "b\t")) + str(draw.randrange(90)) for _ in range(count)]
        write_lines(root / "l.txt", entries)
        one = block(str(root), str(root / "l.txt"), name="l", exchange=False, **HERE)
        kept, left = outputs(root, "l"), unmatched(root, "l") if one.unmatched else []
        other = block(str(root), str(root / "l.txt"), name="l", exchange=True, overwrite=True, **HERE)
        assert outputs(root, "l") == kept
        assert (unmatched(root, "l") if other.unmatched else []) == left
        assert (one.repeated, one.unmatched, one.examples) == (
            other.repeated,
            other.unmatched,
            other.examples,
        )
        expected = [
            entry for entry in dict.fromkeys(entries) if not any(entry in (i, f"{s}\t{i}") for i, s in docs)
        ]
        assert ["\t".join(filter(None, (row.get("source"), row["id"]))) for row in left] == expected


@pytest.mark.parametrize("exchange", [False, True])
def test_nothing_is_read_when_everything_is_finished(world, monkeypatch, exchange):
    arguments = (str(world), str(world.parent / "takedown.txt"))
    first = block(*arguments, exchange=exchange, **HERE)
    monkeypatch.setattr(verb, "_read_facts", None)
    for name in ("list_keys", "write_unmatched"):
        monkeypatch.setattr(block_run, name, None)
    monkeypatch.setattr(exchange_job, "exchange", None)
    for path in world.rglob("documents/*.gz"):
        os.utime(path, (1, 1))
    for again_by in (None, True, False):
        again = block(*arguments, exchange=again_by, **HERE)
        assert (again.done, again.skipped) == (0, 3)
        assert (again.unmatched, again.repeated, again.examples) == (3, 1, first.examples)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [False, True])
def test_a_changed_list_or_document_is_noticed(world, exchange):
    path = world.parent / "takedown.txt"
    block(str(world), str(path), exchange=exchange, **HERE)
    write_lines(path, ["4"])
    done = block(str(world), str(path), exchange=exchange, **HERE)
    assert (done.done, done.unmatched) == (3, 0)
    assert marks_of(world) == expected_marks(["4"])
    assert not (world / "_quarantine/block/takedown.unmatched.jsonl").exists()
    lines = [json.dumps({"id": "5", "source": "web", "text": "t"})]
    write_lines(world / "documents/x/b.jsonl.gz", lines)
    done = block(str(world), str(path), exchange=exchange, allow_unmatched=True, **HERE)
    assert (done.done, done.skipped, done.unmatched) == (1, 2, 1)


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (["web 2", "web 2", "books 1"], "any of its 3 entries, such as 'web 2' and 'books 1'"),
        ([], "an empty list"),
    ],
)
def test_a_list_that_matches_nothing_is_an_error(world, entries, found, exchange, monkeypatch):
    path = world.parent / "takedown.txt"
    write_lines(path, entries)
    for _ in range(2):  # also where everything is finished
        with pytest.raises(
            DataError, match=f"{found}; .* such as '1' of source 'web', '2' of source 'books'"
        ):
            block(str(world), str(path), exchange=exchange, **HERE)
    done = block(str(world), str(path), exchange=exchange, allow_unmatched=True, **HERE)
    assert (done.done, done.unmatched, done.matches_nothing) == (3, len({*entries}), True)
    monkeypatch.setattr(verb, "MAX_IN_MEMORY", -1 if exchange else 9)
    for option in ("block", "allow"):
        with pytest.raises(DataError, match=f"takedown.txt: .*{found}; .* --allow-unmatched"):
            dk.mix(str(world), to=str(world.parent / "v1"), **{option: str(path)}, **HERE)
    assert not (world.parent / "v1").exists()
    mixed = dk.mix(str(world), to=str(world.parent / "v1"), block=str(path), allow_unmatched=True, **HERE)
    assert mixed.counts["documents_out"] == len(DOCUMENTS)
    for shard in SHARDS:
        write_lines(world / "documents" / shard, [])
    assert block(str(world), str(path), exchange=exchange, **HERE).exit_status == 0, (
        "no documents, no mistake"
    )


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("l.txt", "web,1", "'web,1' looks like source and id with a comma .*: expected a source, a tab and an id, or .* .csv"),
        ("l.txt", "1;web", "'1;web' looks like id and source with a semicolon .*: expected a source, a tab and an id"),
        ("l.csv", "books; 2", "looks like source and id with a semicolon .*: expected a source, a comma and an id"),
        ("l.txt", "1\tweb", r"swapped in '1\\tweb': expected the source first, as in 'web', then the id '1'"),
        ("l.csv", "1,web", r"swapped in '1\\tweb'"),
        ("l.txt", "web\tnobody", None),
        ("l.txt", "a,b;c", None),
    ],
)  # fmt: skip
def test_a_list_with_another_separator_or_order_is_told(world, name, line, told):
    write_lines(world / "documents/z.jsonl", [json.dumps({"id": "z9", "source": "zoo", "text": "t"})])
    write_lines(world.parent / name, [line])
    with pytest.raises(
        DataError, match="such as '1' of source 'web', '2' of source 'books' and 'z9'"
    ) as caught:
        block(str(world), str(world.parent / name), **HERE)
    assert caught.match(told) if told else "look" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (LIST, "1 entry without a source flags documents of several sources, first '1'"),  # of one shard, and of two
        (["web\t1", "7", "2"], "2 entries without a source flag documents of several sources, first '7'"),
        (["web\t1", "books\t1", "4", "3", "nobody"], None),
    ],
)  # fmt: skip
def test_entries_without_a_source_that_flag_documents_of_several_are_told(world, entries, told):
    lines = [json.dumps({"id": "7", "source": source, "text": "t"}) for source in ("web", "zoo")]
    write_lines(world / "documents/z.jsonl", lines)
    path = world.parent / "takedown.txt"
    write_lines(path, entries)
    for _ in range(2):  # also where everything is finished
        notes = block(str(world), str(path), **HERE).notes
        assert [told in note for note in notes] == [True] if told else notes == ()
    mixed = dk.mix(str(world), to=str(world.parent / "v1"), block=str(path), **HERE)
    assert any("several sources" in note for note in mixed.notes) == bool(told)


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("changed", ["list", "documents"])
def test_flags_of_a_list_that_was_refused_are_refused_too(world, changed, exchange):
    path = world.parent / "takedown.txt"
    write_lines(path, ["1"])
    block(str(world), str(path), exchange=exchange, **HERE)
    if changed == "list":
        write_lines(path, ["17 web"])
    else:
        for shard in SHARDS:
            lines = [json.dumps({"id": "new", "source": "web", "text": "t"})]
            write_lines(world / "documents" / shard, lines)
    rules = [{"where": "takedown is None"}, {"where": ~listed("takedown")}, {"block": str(path)}]
    for only in (None, "x/"):
        with pytest.raises(DataError, match=r"takedown\.txt: no document has any"):
            block(str(world), str(path), exchange=exchange, **HERE)
        assert not (world / "attributes/takedown").exists()
        (row,) = dk.status(str(world)).rows
        assert (row.done, row.left, row.changed, row.state) == (0, 0, 0, "removed")
        for rule in rules:
            with pytest.raises((DataError, UsageError), match=r"no document has any|the rule names takedown"):
                dk.mix(str(world), to=str(world.parent / "v1"), **rule, **HERE)
        done = block(str(world), str(path), only="x/", **HERE)
        assert any("all marks are refused" in note for note in done.notes), only
    assert not (world.parent / "v1").exists()
    assert block(str(world), str(path), allow_unmatched=True, exchange=exchange, **HERE).done == 2
    assert dk.status(str(world)).rows[0].state == "done"
    kept = dk.mix(str(world), to=str(world.parent / "v1"), where="takedown is None", **HERE)
    assert kept.counts["documents_out"] == kept.counts["documents_in"]
    write_lines(path, ["1", "new"])
    assert block(str(world), str(path), exchange=exchange, **HERE).counts["listed"] == 3


def test_a_refused_list_leaves_nothing_behind_and_no_file_of_others_is_removed(world):
    write_lines(world.parent / "wrong.txt", ["web 1"])
    with pytest.raises(DataError, match="no document has any"):
        block(str(world), str(world.parent / "wrong.txt"), **HERE)
    assert not (world / "attributes").exists() or not list((world / "attributes").iterdir())
    assert dk.status(str(world)).exit_status == 0
    assert dk.mix(str(world), to=str(world.parent / "v1"), **HERE).counts["documents_out"] == len(DOCUMENTS)
    (world / "attributes/wrong").mkdir(parents=True)
    (world / "attributes/wrong/README").write_text("mine")
    with pytest.raises(DataError, match="no document has any"):
        block(str(world), str(world.parent / "wrong.txt"), **HERE)
    assert [path.name for path in (world / "attributes/wrong").rglob("*")] == ["README"]


def test_the_same_bytes_under_another_suffix_are_another_list(world):
    path = world.parent / "takedown.txt"
    write_lines(path, ["source,id", "web,1"])
    done = block(str(world), str(path), allow_unmatched=True, **HERE)
    assert (done.counts["listed"], done.unmatched) == (0, 2)
    path = path.rename(path.with_suffix(".csv"))
    done = block(str(world), str(path), **HERE)
    assert (done.done, done.counts["listed"], done.unmatched) == (3, 2, 0)
    assert marks_of(world) == expected_marks(["web\t1"])


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [False, True])
def test_old_marks_are_refused_once_the_list_has_changed(world, exchange):
    path = world.parent / "takedown.txt"
    block(str(world), str(path), exchange=exchange, **HERE)
    write_lines(path, ["4"])
    arguments = {"where": "takedown is None", **HERE}
    for done_before in (0, 1):
        opened = count()
        stopped = failing(
            ListedOutput, at=lambda _, opened=opened, most=done_before: next(opened) == most, method="open"
        )
        with stopped, pytest.raises(InterruptedStageError):
            block(str(world), str(path), exchange=exchange, **HERE)
        assert not (world / "_quarantine/block/takedown.unmatched.jsonl").exists()
        with pytest.raises(AlignmentError, match="not made by one run of `block`"):
            dk.mix(str(world), to=str(world.parent / "v1"), **arguments)
    assert block(str(world), str(path), exchange=exchange, **HERE).done == 2
    assert dk.mix(str(world), to=str(world.parent / "v1"), **arguments).counts["documents_out"] == 6
    write_lines(path, LIST)
    block(str(world), str(path), exchange=exchange, **HERE)
    records = dict(Journal(str(world), "block").records)
    whole = records.pop("attributes/takedown/")
    assert {record.key for record in records.values()} == {whole.info["key"]}
    assert whole.info["depends_on"] == "list"


@pytest.mark.slow
def test_marks_of_another_list_in_the_other_shards_are_refused(world):
    path = world.parent / "takedown.txt"
    first = block(str(world), str(path), **HERE)
    assert not any("another list" in note for note in block(str(world), str(path), only="x/", **HERE).notes)
    write_lines(path, ["4"])
    done = block(str(world), str(path), only="x/", **HERE)
    assert any("2 files of marks are of another list" in note for note in done.notes)
    arguments = {"to": str(world.parent / "v1"), "where": "takedown is None", **HERE}
    with pytest.raises(AlignmentError, match="not made by one run of `block`"):
        dk.mix(str(world), **arguments)
    assert dk.mix(str(world), only="x/", **arguments).counts["documents_out"] == 3
    write_lines(path, LIST)  # as it was: marks of the two other shards hold again
    again = block(str(world), str(path), **HERE)
    assert (again.done, again.skipped, again.unmatched) == (1, 2, first.unmatched)
    assert dk.mix(str(world), **arguments).counts["documents_out"] == 3


@pytest.mark.slow
def test_some_shards_first_then_all(world):
    path = str(world.parent / "takedown.txt")
    done = block(str(world), path, only="x/", **HERE)
    assert (done.done, done.unmatched) == (1, None)
    assert any("only some shards" in note for note in done.notes)
    done = block(str(world), path, **HERE)
    assert (done.done, done.skipped, done.unmatched) == (2, 1, 3)
    assert marks_of(world) == expected_marks()
    other = world.parent / "takedown2.txt"
    write_lines(other, LIST)
    assert block(str(world), str(other), prune=2, exchange=True, **HERE).done == 2
    assert block(str(world), str(other), exchange=True, **HERE).unmatched == 3
    assert marks_of(world, "takedown2") == expected_marks()


@pytest.mark.parametrize("where", ["takedown is None", ~listed("takedown")])
def test_mix_drops_listed_documents_or_keeps_them_alone(world, where):
    block(str(world), str(world.parent / "takedown.txt"), format="parquet", **HERE)
    dropped = dk.mix(str(world), to=str(world.parent / "v1"), where=where, **HERE)
    assert dropped.counts["documents_out"] == 3
    kept = dk.mix(str(world), to=str(world.parent / "v2"), where=listed("takedown"), **HERE)
    assert kept.counts["documents_out"] == 4


def test_overwrite_of_a_mix_reaches_the_flags_of_its_lists_and_no_set_of_another_verb(world):
    arguments = {"to": str(world.parent / "v1"), "block": str(world.parent / "takedown.txt"), **HERE}
    dk.mix(str(world), **arguments)
    (world / "documents/a.jsonl.gz").unlink()
    with pytest.raises(
        UsageError, match=r"does not make, first 'attributes/takedown/a.jsonl.gz'.* --overwrite"
    ):
        dk.mix(str(world), **arguments)
    assert dk.mix(str(world), overwrite=True, **arguments).counts["documents_out"] == 1
    assert list(outputs(world)) == ["empty.jsonl.gz", "x/b.jsonl.gz"]
    dk.tag(str(world), ["char_length_v1"], **HERE)
    tagged = outputs(world, "char_length_v1")
    list_file = (world.parent / "takedown.txt").rename(world.parent / "char_length_v1.txt")
    with pytest.raises(UsageError, match="not made by this command"):
        dk.mix(str(world), overwrite=True, **{**arguments, "block": str(list_file)})
    assert outputs(world, "char_length_v1") == tagged


@pytest.mark.parametrize("exchange", [True, False])
def test_stopped_and_called_again(world, exchange):
    path = str(world.parent / "takedown.txt")
    stopped = failing(MatchedEntries, at=lambda task: task.shard.endswith("empty.jsonl.gz"))
    if exchange:
        stopped = failing(ListedOutput, at=lambda unit: unit.name.endswith("empty.jsonl.gz"), method="open")
    with stopped, pytest.raises(InterruptedStageError):
        block(str(world), path, exchange=exchange, **HERE)
    with failing(ListEmitter, method="emit"):  # nothing is read twice
        done = block(str(world), path, exchange=exchange, **HERE)
    assert (done.unmatched, done.done) == (3, 1 if exchange else 0)
    assert marks_of(world) == expected_marks()
    assert not (world / "_work").exists()


@pytest.mark.slow
def test_a_bad_document_fails_or_keeps_its_row(world):
    path = str(world.parent / "takedown.txt")
    write_lines(
        world / "documents/c.jsonl", ["nonsense", json.dumps({"id": "4", "source": "s", "text": "t"})]
    )
    with pytest.raises(StageError, match="row 0, byte 0: invalid json"):
        block(str(world), path, **HERE)
    for exchange in (False, True):
        done = block(str(world), path, on_bad_record="quarantine", exchange=exchange, overwrite=True, **HERE)
        assert (done.exit_status, done.counts["bad_records"]) == (1, 1)
        bad, good = (json.loads(line) for line in read_lines(world / "attributes/takedown/c.jsonl"))
        assert (bad["id"], good["id"], good["attributes"]) == (None, "4", {})
        assert (world / "_quarantine/block/c.jsonl.jsonl").exists()


def test_what_is_refused(world):
    path = str(world.parent / "takedown.txt")
    dk.tag(str(world), ["char_length_v1"], **HERE)
    for arguments, message in (
        ({"name": "a/b"}, "folder name"),
        ({"name": "char_length_v1"}, "not made by this command"),
        ({"exchange": "yes"}, "expected True or False"),
        ({"format": "csv"}, "expected one of"),
    ):
        with pytest.raises(UsageError, match=message):
            block(str(world), path, **{**HERE, **arguments})
    with pytest.raises(UsageError, match="expected a path"):
        block(str(world), 17, **HERE)
    for name in ("none.txt", "v0"):
        with pytest.raises(UsageError, match=r"(no such file|a folder); expected a file with a list of ids"):
            block(str(world), str(world.parent / name), **HERE)
    write_lines(world.parent / "my list.txt", ["1"])
    with pytest.raises(UsageError, match=r"'my list' to an attribute set; .* Give it another: --name"):
        block(str(world), str(world.parent / "my list.txt"), **HERE)
    with pytest.raises(UsageError, match=r"'my list' to an attribute set; .* Rename the file"):
        dk.mix(str(world), to=str(world.parent / "v1"), block=str(world.parent / "my list.txt"), **HERE)
    write_lines(world.parent / "bad.txt", ["a", "b\tc\td"])
    with pytest.raises(BadRecordError, match="line 2: 3 fields"):
        block(str(world), str(world.parent / "bad.txt"), **HERE)
    before = sorted(str(item) for item in world.rglob("*"))
    assert block(str(world), path, dry_run=True, **HERE).planned == tuple(SHARDS)
    assert sorted(str(item) for item in world.rglob("*")) == before


def test_a_list_in_memory_is_not_read_in_other_processes(world):
    with fsspec.open("memory://lists/takedown.txt", "w") as file:
        file.write("1\n")
    options = {"name": "m", "progress": False}
    with pytest.raises(UsageError, match="memory:// lie in the memory of this process"):
        dk.block(str(world), "memory://lists/takedown.txt", scheduler="processes", **options)
    assert dk.block(str(world), "memory://lists/takedown.txt", scheduler="threads", **options).done == 3
