"""The page of a version whose files were cut by size or shuffled, and of one that more than a rule has chosen."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from unsealed import unsealed

import dolma_dask as dk
from dolma_dask.journal import Journal
from dolma_dask.testing.tokenizer import train_tokenizer

from .conftest import read_lines, write_as_tagged, write_lines
from .report_pages import LENGTH, ODD, QUIET, lines_of, page_of, stages

RULE = "30 < length <= 70 and source == 'odd'"
CUTS = {
    "shuffled": {"shuffle": True, "seed": 3},
    "cut": {"max_size": 300},
    "both": {"shuffle": True, "max_size": 300},
}

pytestmark = pytest.mark.usefixtures("plain")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Three shards of 60 documents, tagged; one bad line."""
    root = tmp_path_factory.mktemp("made")
    for name, numbers in (("a", range(25)), ("b/c", range(25, 50)), ("d", range(50, 60))):
        lines = [*lines_of(numbers), *(["{"] if name == "a" else [])]
        write_lines(root / f"v0/documents/{name}.jsonl.gz", lines)
    dk.tag(str(root / "v0"), ["char_length_v1"], on_bad_record="quarantine", **QUIET)
    train_tokenizer(["wörd 1 2 3"], root / "tokenizer.json", 300)
    return root


@pytest.fixture
def world(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path / "w", copy_function=shutil.copy2)
    return tmp_path / "w"


def mix(world: Path, name: str = "v1", of: str = "v0", **more):
    return dk.mix(str(world / of), to=str(world / name), **{**ODD, **QUIET, **more})


def change_length(world: Path, source: str, of: range, to: float) -> None:
    """Give the first document of a source another length than it has."""
    path = world / "v0/attributes/char_length_v1/b/c.jsonl.gz"
    rows = [json.loads(line) for line in read_lines(path)]
    spans = [row["attributes"][LENGTH][0] for row in rows if row["source"] == source]
    next(span for span in spans if span[2] in of)[2] = to
    write_as_tagged(world / "v0", "attributes/char_length_v1/b/c.jsonl.gz", [json.dumps(row) for row in rows])


@pytest.mark.parametrize("cut", CUTS)
def test_it_tells_what_the_page_of_a_plain_mix_tells(cut, world):
    mix(world, "plain", where=RULE)
    written = mix(world, "v1", where=RULE, **CUTS[cut])
    (content, notes), (plain, _) = page_of(world / "v1"), page_of(world / "plain")
    assert notes == ()
    for part in ("sources", "signals", "rules", "examples", "where", "quarantine", "results", "remarks"):
        assert content[part] == plain[part], part
    assert content["quarantine"] == [
        {
            "verb": verb,
            "reason": "invalid json",
            "records": 1,
            "file": "a.jsonl.gz",
            "first_row": 25,
            "source": "",
        }
        for verb in ("tag", "mix")
    ]
    ours, theirs = stages(content), stages(plain)
    assert ours["tag"] == theirs["tag"]
    paths = list((world / "v1/documents").iterdir())
    assert len(paths) > 1 or cut == "shuffled"
    mine = {**ours["mix"], "note": "", "seconds": 0, "cpu_seconds": 0, "bytes_out": 0, "shards": 0}
    assert mine == {**theirs["mix"], "note": "", "seconds": 0, "cpu_seconds": 0, "bytes_out": 0, "shards": 0}
    assert mine["documents_out"] == written.counts["documents_out"] > 5
    assert ours["mix"]["shards"] == len(paths)
    assert ours["mix"]["bytes_out"] == sum(path.stat().st_size for path in paths)
    note = "; ".join(
        ["from v0", *(["shuffled"] if "shuffle" in CUTS[cut] else []),
         *(["files of at most 300 bytes"] if "max_size" in CUTS[cut] else [])]
    )  # fmt: skip
    assert ours["mix"]["note"] == note


def test_what_changed_since_is_said_of_the_whole(world):
    mix(world, where=RULE, shuffle=True)
    change_length(world, "odd", of=range(31, 71), to=93.0)
    content, notes = page_of(world / "v1")
    assert any("made again since mix ran; run mix again" in note for note in notes)
    ours = stages(content)["mix"]
    assert "run mix again" in ours["note"]
    assert sum(row["kept_documents"] for row in content["sources"]) == ours["documents_out"], "as mix did it"


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"exclude": ["$.source"], "sample": 0.5}])
def test_a_journal_that_has_not_counted_drops_makes_the_same_page(options, world):
    mix(world, where=RULE, **options)
    content, notes = page_of(world / "v1")
    assert any(row["dropped"] for row in content["rules"])
    for segment in (world / "v1/_journal/mix").glob("*.jsonl"):
        records = [json.loads(line) for line in unsealed(segment.read_text()).splitlines()]
        assert any("drops" in record for record in records)
        kept = [{key: value for key, value in record.items() if key != "drops"} for record in records]
        segment.write_text("".join(f"{json.dumps(record)}\n" for record in kept))
    assert page_of(world / "v1", "again") == (content, notes)


def test_a_shard_without_a_record_is_counted_too(world):
    mix(world, where=RULE)
    content, _ = page_of(world / "v1")
    (segment,) = (world / "v1/_journal/mix").glob("*.jsonl")
    lines = segment.read_text().splitlines(keepends=True)
    segment.write_text("".join(line for line in lines if '"shard":"a.jsonl' not in line))
    assert len(segment.read_text()) < sum(map(len, lines))
    again, notes = page_of(world / "v1", "again")
    assert (again["sources"], again["rules"]) == (content["sources"], content["rules"])
    assert any("run mix again" in note for note in notes)


def test_another_rule_for_the_same_files_replaces_what_was_told(world):
    mix(world, where=RULE, max_size=300)
    mix(world, where="length > 70", max_size=2000, overwrite=True)
    content, notes = page_of(world / "v1")
    assert notes == ()
    assert content["where"] == "length > 70"
    assert (
        stages(content)["mix"]["documents_out"]
        == sum(row["kept_documents"] for row in content["sources"])
        > 0
    )


def test_the_way_goes_on_through_files_that_were_cut(world):
    """From shards to cut files, tags, a second selection, cut again, and tokens."""
    mix(world, "v1", where="length > 20", shuffle=True, max_size=300)
    dk.tag(str(world / "v1"), ["char_length_v1"], **QUIET)
    mix(world, "v2", of="v1", where="length > 40")
    mix(world, "v3", of="v2", where="source == 'odd'", max_size=300)
    tokens = dk.ragged(
        str(world / "v3"), str(world / "tokens"), tokenizer=str(world / "tokenizer.json"), **QUIET
    ).target
    counts = {name: len(list(documents(world / name))) for name in ("v1", "v2", "v3")}
    assert 60 > counts["v1"] > counts["v2"] > counts["v3"] > 5
    content, notes = page_of(world / "v3", tokens=[tokens])
    assert notes == ()
    assert [(row["verb"], row["documents_in"], row["documents_out"]) for row in content["stages"]] == [
        ("tag", 61, 61),
        ("mix", 61, counts["v1"]),
        ("tag", counts["v1"], counts["v1"]),
        ("mix", counts["v1"], counts["v2"]),
        ("mix", counts["v2"], counts["v3"]),
        ("ragged", counts["v3"], counts["v3"]),
    ]
    assert content["rules"][0]["matched_documents"] == counts["v3"]
    content, notes = page_of(world / "v2")
    assert notes == ()
    assert [row["documents_out"] for row in content["stages"]] == [
        61,
        counts["v1"],
        counts["v1"],
        counts["v2"],
    ]


def documents(root: Path):
    for path in (root / "documents").rglob("*.gz"):
        yield from read_lines(path)


def test_of_some_shards_it_tells_what_can_be_told(world):
    mix(world, where=RULE, shuffle=True, max_size=300)
    content, notes = page_of(world / "v1", only=["b/"])
    assert notes == ()
    assert stages(content)["tag"]["documents_in"] == 25
    assert stages(content)["mix"]["documents_in"] is None
    assert content["quarantine"] == []
    assert sum(row["documents"] for row in content["sources"]) == 25
    assert content["remarks"] == [
        "v1 was cut into files by size: how many documents of some shards it has cannot be told"
    ]


def test_only_the_shards_that_it_was_made_of_are_counted(world):
    mix(world, where=RULE, shuffle=True, only=["a", "b/"])
    content, notes = page_of(world / "v1")
    (note,) = (note for note in notes if "not counted" in note)
    assert note == "1 shard of v0 is not in v1 and not counted"
    assert stages(content)["tag"]["documents_in"] == 51
    assert not any("run mix again" in row["note"] for row in content["stages"])


def test_a_shard_that_is_gone_is_no_disagreement(world):
    mix(world, where=RULE, shuffle=True)
    (world / "v0/documents/d.jsonl.gz").unlink()
    content, notes = page_of(world / "v1")
    assert notes == ("1 shard of v0 that v1 was made of is not there any more",)
    gap = "v1 was made of shards that are gone: its counts cannot be compared"
    assert content["remarks"] == [*notes, gap]
    assert stages(content)["mix"]["documents_in"] == 61


def test_files_that_are_not_all_there_cannot_be_related(world):
    mix(world, where=RULE, shuffle=True, max_size=300)
    next((world / "v1/documents").iterdir()).unlink()
    content, notes = page_of(world / "v1")
    assert any("not all there as one mix has written them" in note for note in notes)
    assert content["rules"] == []
    assert sum(row["documents"] for row in content["sources"]) == len(list(documents(world / "v1")))


def test_files_that_are_about_to_be_replaced_cannot_be_related(world):
    mix(world, where=RULE, shuffle=True, max_size=300)
    journal = Journal(str(world / "v1"), "mix")
    records = list(journal.records.values())
    writer = journal.start(journal.runs[-1].params, ("documents/",), "")
    for record in records:  # as a mix with other options does before it begins
        writer.add(msgspec.structs.replace(record, stale=True))
    writer.close()
    content, notes = page_of(world / "v1")
    assert any("not all there as one mix has written them" in note for note in notes)
    assert content["rules"] == []
    assert stages(content)["mix"]["documents_out"] is None


def test_tokens_made_of_what_was_cut_are_taken(world):
    mix(world, where=RULE, shuffle=True)
    options = {"tokenizer": str(world / "tokenizer.json"), **QUIET}
    tokens = dk.ragged(str(world / "v0"), str(world / "t"), where=RULE, **ODD, **options).target
    content, _ = page_of(world / "v1", tokens=[tokens])
    assert stages(content)["ragged"]["documents_out"] == stages(content)["mix"]["documents_out"]


# ------------------------------------------------------------------------------------------------ more than a rule


LONG = f"$.attributes[?(@.{LENGTH}[0][2] >= 50)]"
OTHERS = {
    "include": ({"include": [LONG]}, "filters"),
    "exclude": ({"exclude": ["$.source", LONG]}, "filters"),
    "sample": ({"sample": 0.5}, "a sample"),
    "several": ({"sample": 2.5, "seed": 1}, "more than once"),
    "length": ({"min_text_length": 60}, "the least length of a text"),
    "all": ({"include": [LONG], "sample": 0.5, "min_text_length": 70}, "filters, the least length of a text"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "shuffled"])
@pytest.mark.parametrize("name", OTHERS)
def test_what_a_rule_alone_does_not_tell_is_said_and_no_disagreement(name, packed, world):
    options, words = OTHERS[name]
    written = mix(world, where="length > 20", shuffle=packed, **options)
    content, notes = page_of(world / "v1")
    assert notes == ()
    assert stages(content)["mix"]["note"] == ("from v0; shuffled" if packed else "from v0")
    (remark,) = content["remarks"]
    kept = sum(row["kept_documents"] for row in content["sources"])
    assert kept == content["rules"][0]["matched_documents"]
    assert (
        f"The rule alone keeps {kept} documents; mix wrote {written.counts['documents_out']:.0f}, because"
        in remark
    )
    assert words in remark
    filters = {rule.name: rule.matched for rule in written.rules if rule.kind != "where"}
    shown = {row["rule"]: (row["matched_documents"], row["share"]) for row in content["rules"][1:]}
    assert shown == {name: (count, count / 60) for name, count in filters.items()}


@pytest.mark.parametrize("where", [None, "length > 20"])
def test_tokens_straight_from_filters(where, world):
    tokens = {"to": str(world / "t"), "tokenizer": str(world / "tokenizer.json")}
    written = dk.mix(str(world / "v0"), ragged=tokens, where=where, include=[LONG], **ODD, **QUIET)
    content, notes = page_of(world / "v0", tokens=[tokens["to"]])
    assert notes == ()
    (remark,) = content["remarks"]
    assert f"ragged wrote {written.counts['documents_out']:.0f}" in remark
    assert content["rules"][-1]["rule"] == f"include {LONG}"


@pytest.mark.parametrize("packed", [{}, {"shuffle": True}], ids=["plain", "shuffled"])
def test_tokens_of_the_same_mix(packed, world):
    tokens = {"to": str(world / "t"), "tokenizer": str(world / "tokenizer.json")}
    mix(world, where=RULE, ragged=tokens, **packed)
    content, notes = page_of(world / "v1", tokens=[tokens["to"]])
    assert notes == ()
    assert stages(content)["ragged"]["documents_out"] == stages(content)["mix"]["documents_out"]
    assert stages(content)["ragged"]["tokens"] > 0


def test_filters_without_a_rule(world):
    written = mix(world, include=[LONG], max_size=300)
    content, notes = page_of(world / "v1")
    assert notes == ()
    assert content["where"] is None
    assert [row["rule"] for row in content["rules"]] == [f"include {LONG}"]
    assert {row["kept_documents"] for row in content["sources"]} == {None}
    assert content["signals"][0]["kept_counts"] is None
    assert content["remarks"] == [
        f"No rule decided, but filters: mix wrote {written.counts['documents_out']:.0f} of 60 documents. Which ones is not worked out again: "
        "this page shows all that were read."
    ]


@pytest.mark.parametrize(
    "options", [{}, {"include": [LONG]}, {"sample": 0.5}], ids=["rule", "filter", "sample"]
)
def test_a_condition_that_holds_for_others_now_is_a_disagreement_always(options, world):
    mix(world, where="length > 0 and source == 'odd'", shuffle=True, **options)
    change_length(world, "even", of=range(1, 100), to=-1.0)
    _, notes = page_of(world / "v1")
    assert notes == ("1 file of documents or attributes was made again since mix ran; run mix again",)


@pytest.mark.parametrize(
    "options", [{"min_text_length": 1}, {"exclude": ["$.metadata.nothing"]}, {"sample": 1.0}]
)
def test_what_has_decided_nothing_leaves_the_comparison(options, world):
    mix(world, where=RULE, **options)
    change_length(world, "odd", of=range(31, 71), to=93.0)
    _, notes = page_of(world / "v1")
    (note,) = notes
    assert "made again since mix ran" in note


def test_changed_texts_are_said(world):
    attributes = world / "v0/attributes/cut"
    for path in (world / "v0/documents").rglob("*.gz"):
        rows = [json.loads(line) if line != "{" else None for line in read_lines(path)]
        marks = [
            json.dumps(
                {"id": None, "attributes": {}, "error": "bad"}
                if row is None
                else {"id": row["id"], "source": row["source"], "attributes": {"cut__cut__w": [[0, 4, 1.0]]}}
            )
            for row in rows
        ]
        write_lines(attributes / path.relative_to(world / "v0/documents"), marks)
    span = {"span": "$.attributes.cut__cut__w", "min_score": 0.5, "replacement": "x"}
    mix(world, where=RULE, attributes=["char_length_v1", "cut"], replace=[span], shuffle=True)
    content, notes = page_of(world / "v1")
    assert notes == ()
    kept = sum(row["kept_documents"] for row in content["sources"])
    assert content["remarks"] == [
        f"mix changed the text of {kept} documents: sizes by source, signals and excerpts are of the text before."
    ]
    assert stages(content)["mix"]["documents_out"] == kept
