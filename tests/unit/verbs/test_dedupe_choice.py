"""dedupe among some documents: a rule, groups, and who survives, exact and fuzzy, against a search in plain Python."""

import itertools
import json
import random
import shlex
import shutil
from collections import defaultdict

import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import InterruptedStageError, StageError, StaleAttributesError, UsageError
from dolma_dask.rules.where import parse
from dolma_dask.verbs.dedupe.fuzzy.choices import ChoiceStage
from dolma_dask.verbs.dedupe.fuzzy.clusters import ClusterReducer
from dolma_dask.verbs.dedupe.fuzzy.ngram_sets import NgramReducer
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignatureOutput

from .conftest import failing, read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
LOOSE = {"how": "fuzzy", "num_bands": 40, "rows_per_band": 1, "num_perm": 40}
"""Bands that find every pair of near copies, and no pair of others."""

TIMES = {  # by their order
    None: 0, "yesterday": 0, "2020-02-30": 0,
    "1999": 1, "2021-05-04": 3, "2021-05-03T23:59:59.5Z": 2, "2021-05-04T01:00:00+02:00": 1.5, "20210504T000001": 4,
    "2021-05-04 00:00:01.25 UTC": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Write families of equal and of near texts, with languages, scores and times, and tag their lengths."""
    root = tmp_path_factory.mktemp("made") / "v0"
    draw = random.Random(6)
    documents = []
    for family in range(12):
        words = [f"f{family}w{number}" for number in range(60)]
        for _ in range(draw.randrange(1, 8)):
            end = draw.choice(("", " end", " another end", " end of all"))
            metadata = {"language": draw.choice(("de", "fr")), "score": draw.choice((1, 2.5, -3, 2**60 + 1))}
            metadata = {name: value for name, value in metadata.items() if draw.random() < 0.8}
            time = draw.choice(list(TIMES))
            document = {"text": " ".join(words) + end, "source": f"s{family % 2}", "metadata": metadata}
            documents.append({**document, "family": family} | ({"created": time} if time else {}))
    draw.shuffle(documents)
    documents = [{"id": f"d{number}", **document} for number, document in enumerate(documents)]
    shards = [documents[:20], documents[20:21], documents[21:]]
    for number, shard in enumerate(shards):
        lines = [json.dumps({k: v for k, v in one.items() if k != "family"}) for one in shard]
        write_lines(root / f"documents/{number}.jsonl{'' if number == 2 else '.gz'}", lines)
    dk.tag(str(root), ["char_length_v1"], **HERE)
    return root, documents


@pytest.fixture
def world(made, tmp_path):
    """Return a copy of the dataset and its documents."""
    root, documents = made
    shutil.copytree(root, tmp_path / "v0")
    return tmp_path / "v0", documents


def flagged(root, name):
    paths = sorted((root / "attributes" / name).rglob("*.jsonl*"), key=str)
    rows = [json.loads(line) for path in paths for line in read_lines(path)]
    return {row["id"] for row in rows if name in row["attributes"]}


def expected(documents, how, takes_part, group, rank):
    """Return the ids of all but the survivors: of those that take part the one of the lowest rank in each cluster, the first of equals."""
    clusters = defaultdict(list)
    for number, one in enumerate(documents):
        if takes_part(one) and group(one) is not None:
            key = one["text"] if how == "exact" else one["family"]
            clusters[key, group(one)].append((rank(one), number, one["id"]))
    return {identity for members in clusters.values() for _, _, identity in sorted(members)[1:]}


def score(sign):
    """Return a rank by the score, documents without one last."""

    def rank(one):
        value = one["metadata"].get("score")
        return (value is None, sign * float(value or 0))

    return rank


def age(sign):
    def rank(one):
        order = TIMES[one.get("created")]
        return (order == 0, sign * order)

    return rank


KEEP = {
    "first": ({"keep": "first"}, lambda one: 0),
    "longest": ({"keep": "longest"}, lambda one: -len(one["text"])),
    "newest": ({"keep": "newest"}, age(-1)),
    "oldest": ({"keep": "oldest", "rank": "created"}, age(1)),
    "newest by number": ({"keep": "newest", "rank": "metadata.score"}, score(-1)),
    "highest": ({"keep": "highest", "rank": "metadata.score"}, score(-1)),
    "lowest": ({"keep": "lowest", "rank": "metadata.score"}, score(1)),
    "shortest": ({"keep": "lowest", "rank": "length"}, lambda one: len(one["text"])),
}
WHERE = {
    "all": ({}, lambda one: True),
    "long": ({"where": "length >= 350"}, lambda one: len(one["text"]) >= 350),
    "scored": (
        {"where": "metadata.score > 2 and source == 's0'"},
        lambda one: one["metadata"].get("score", 0) > 2 and one["source"] == "s0",
    ),
}
WITHIN = {
    "together": ({}, lambda one: 0),
    "languages": ({"within": "metadata.language"}, lambda one: one["metadata"].get("language")),
    "scores": ({"within": "metadata.score"}, lambda one: one["metadata"].get("score")),
}
CALLS = list(
    zip(itertools.cycle(WHERE), KEEP, itertools.islice(itertools.cycle(WITHIN), 1, None), strict=False)
)
CALLS += [("all", "newest", "together"), ("long", "highest", "together"), ("scored", "first", "together")]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_survivors_are_those_of_a_search_by_hand(world, how):
    root, documents = world
    for number, (where, keep, within) in enumerate(CALLS):
        options, takes_part = WHERE[where]
        kept, rank = KEEP[keep]
        by_group, group = WITHIN[within]
        shape = LOOSE if how == "fuzzy" else {}
        name = f"set{number}"
        summary = dk.dedupe(str(root), **shape, **options, **kept, **by_group, name=name, **HERE)
        wanted = expected(documents, how, takes_part, group, rank)
        assert flagged(root, name) == wanted, (where, keep, within)
        assert summary.counts["duplicates"] == len(wanted)
        without = [one for one in documents if not takes_part(one)]
        assert summary.counts.get("documents_excluded", 0) == len(without)
        grouped = [one for one in documents if takes_part(one)]
        assert summary.counts.get("documents_without_group", 0) == sum(group(one) is None for one in grouped)


def test_a_mix_keeps_the_survivors(world):
    root, documents = world
    rule = "length >= 350"
    dk.dedupe(str(root), **LOOSE, where=rule, within="metadata.language", name="near", **HERE)
    summary = dk.mix(
        str(root), to=str(root.parent / "v1"), where=parse(rule) & ~dk.duplicates("near"), **HERE
    )
    takes_part, group = WHERE["long"][1], WITHIN["languages"][1]
    gone = expected(documents, "fuzzy", takes_part, group, KEEP["first"][1])
    assert gone
    assert summary.counts["documents_out"] == sum(map(takes_part, documents)) - len(gone)
    table = pq.read_table(root / "clusters/near.parquet").to_pylist()
    members = {row["id"] for row in table}
    assert {row["id"] for row in table if not row["survivor"]} == gone
    assert not members & {one["id"] for one in documents if not takes_part(one) or group(one) is None}


@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_rounds_of_growing_parts_add_up(world, how):
    root, documents = world
    shards = {"0": documents[:20], "2": documents[21:]}
    shape = LOOSE if how == "fuzzy" else {}
    rounds = [
        ("r1", ["0"], shards["0"]),
        ("r2", ["0", "2"], [*documents[:20], *documents[21:]]),
        ("r3", None, documents),
    ]
    gone, rule = set(), None
    for name, only, part in rounds:
        part = {one["id"] for one in part} - gone
        summary = dk.dedupe(str(root), **shape, only=only, where=rule, name=name, **HERE)
        wanted = expected(
            documents, how, lambda one, part=part: one["id"] in part, lambda one: 0, lambda one: 0
        )
        assert flagged(root, name) == wanted
        note = f"documents of {len(only or ())} of 3 shards were compared; all others are kept"
        assert (note in summary.notes) == (only is not None)
        gone |= wanted
        rule = f"{name} is None" if rule is None else f"{rule} and {name} is None"
    mixed = dk.mix(str(root), to=str(root.parent / "v1"), where=rule, **HERE)
    assert mixed.counts["documents_out"] == len(documents) - len(gone)
    assert not any("compared the documents" in note for note in mixed.notes)
    alone = dk.mix(str(root), to=str(root.parent / "v2"), where="r1 is None", **HERE)
    assert "r1 compared the documents of 1 of 3 shards; duplicates among the others are kept" in alone.notes
    with pytest.raises(UsageError, match="expected all shards"):
        dk.dedupe(str(root), prune=1, name="r4", **HERE)


@pytest.mark.slow
def test_the_report_says_how_many_took_no_part(world):
    root, documents = world
    dk.dedupe(str(root), **LOOSE, where="length >= 350", within="metadata.language", name="near", **HERE)
    dk.report(str(root), to=str(root.parent / "report.html"), **HERE)
    takes_part, group = WHERE["long"][1], WITHIN["languages"][1]
    left_out = sum(not takes_part(one) or group(one) is None for one in documents)
    page = (root.parent / "report.html").read_text()
    assert f"{left_out} documents took no part: only those for which length &gt;= 350 holds" in page
    assert "and with a value of metadata.language were compared" in page


CHOICE = {"where": "length >= 350", "within": "metadata.language", "keep": "newest"}
STOPS = {
    "signatures": (SignatureOutput, "open"),
    "choice": (ChoiceStage, "run_shard"),
    "clusters": (ClusterReducer, "reduce"),
}


def second_call():
    """Return what tells whether it is called again."""
    calls = itertools.count()
    return lambda task: next(calls) > 0


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_was_stopped_goes_on(world, tmp_path, stop):
    root, _ = world
    shutil.copytree(root, tmp_path / "whole")
    dk.dedupe(str(tmp_path / "whole"), **LOOSE, **CHOICE, **HERE)
    stage, method = STOPS[stop]
    at = {} if stop == "clusters" else {"at": second_call()}
    with failing(stage, method=method, **at), pytest.raises(InterruptedStageError):
        dk.dedupe(str(root), **LOOSE, **CHOICE, **HERE)
    dk.dedupe(str(root), **LOOSE, **CHOICE, **HERE)
    assert (root / "clusters/fuzzy.parquet").read_bytes() == (
        tmp_path / "whole/clusters/fuzzy.parquet"
    ).read_bytes()
    for path in (root / "attributes/fuzzy").iterdir():
        assert path.read_bytes() == (tmp_path / "whole/attributes/fuzzy" / path.name).read_bytes()
    assert not list(root.glob("_work/*"))


def test_signatures_hold_for_any_choice(world):
    root, _ = world
    dk.dedupe(str(root), **LOOSE, **HERE)
    before = {path: path.stat().st_mtime_ns for path in (root / "signatures").rglob("*.parquet")}
    assert dk.dedupe(str(root), **LOOSE, **CHOICE, **HERE).done == 3
    assert dk.dedupe(str(root), **LOOSE, **CHOICE, **HERE).done == 0
    assert before == {path: path.stat().st_mtime_ns for path in (root / "signatures").rglob("*.parquet")}


@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_flags_are_stale_when_what_decides_has_changed(world, how):
    root, _ = world
    shape = {"fuzzy": LOOSE}.get(how, {})
    dk.dedupe(str(root), **shape, **CHOICE, name="chosen", **HERE)
    dk.tag(str(root), ["char_length_v1"], overwrite=True, **HERE)
    dk.mix(str(root), to=str(root.parent / "same"), where="chosen is None", **HERE)
    path = root / "attributes/char_length_v1/1.jsonl.gz"
    write_lines(path, [line.replace("[[0", "[[ 0") for line in read_lines(path)])
    with pytest.raises(StaleAttributesError, match="attribute set chosen is stale"):
        dk.mix(str(root), to=str(root.parent / "other"), where="chosen is None", **HERE)


@pytest.mark.parametrize("how", ["exact", "fuzzy"])
def test_flags_are_stale_when_fields_that_no_digest_covers_have_changed(world, how):
    root, _ = world
    shape = {"fuzzy": LOOSE}.get(how, {})
    dk.dedupe(str(root), **shape, within="metadata.language", name="chosen", **HERE)
    path = root / "documents/2.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"language": "de"', b'"language": "fr"', 1))
    with pytest.raises(StageError, match="depends on metadata"):
        dk.mix(str(root), to=str(root.parent / "v1"), where="chosen is None", **HERE)


@pytest.mark.parametrize(
    "change",
    [lambda text: f"{text}\n{text}", lambda text: text[:-30], lambda text: text.replace("w1 ", "v1 ", 1)],
)
@pytest.mark.parametrize(("stage", "method"), [(ChoiceStage, "run_shard"), (NgramReducer, "reduce")])
def test_documents_that_are_written_between_the_passes(world, change, stage, method):
    root, _ = world
    path = root / "documents/2.jsonl"

    def write(task):
        path.write_text(change(path.read_text().rstrip("\n")) + "\n")

    options = {**LOOSE, "verify": "ngrams", "where": "source == 's0'", **HERE}
    stopped = pytest.raises(StageError, match="was written while dedupe read it")
    with failing(stage, at=write, method=method), stopped:
        dk.dedupe(str(root), **options)
    assert not (root / "attributes/fuzzy").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"keep": "newest", "rank": "near_spans"}, "near_spans"),
        ({"within": 3}, "within=3"),
        ({"within": "char_length"}, "char_length"),
        ({"where": 3}, "where=3"),
        ({"where": "length >"}, "length"),
        ({"keep": "longest", "rank": "length"}, "expected a rank"),
        ({"keep": "highest", "rank": "created"}, "expected a number"),
        ({"where": "length > 3", "name": "char_length_v1"}, "would be written and is read for .*length"),
    ],
)
def test_what_cannot_be_is_refused(made, options, words):
    for shape in ({}, LOOSE):
        with pytest.raises(UsageError, match=words):
            dk.dedupe(str(made[0]), **shape, **options, **HERE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ({}, {"how": "fuzzy", "keep": "newest"}, True),
        ({}, {"how": "fuzzy"}, False),
        ({}, {"how": "fuzzy", "keep": "newest", "where": "first is None"}, False),
        ({"by": "id"}, {"how": "fuzzy"}, True),
        ({"how": "fuzzy"}, {"how": "fuzzy", "similarity": 0.9}, True),
        ({"keep": "longest"}, {"keep": "longest", "by": "id"}, True),
    ],
)
def test_two_sets_that_may_drop_all_copies_are_told(tmp_path, first, second, is_told):
    root, text = tmp_path / "v0", " ".join(f"w{number}" for number in range(60))
    documents = [{"id": f"d{n}", "source": "s", "text": text, "created": f"{2020 + n}"} for n in range(3)]
    write_lines(root / "documents/a.jsonl", [json.dumps(one) for one in documents])
    dk.dedupe(str(root), **first, name="first", **HERE)
    dk.dedupe(str(root), **second, name="second", **HERE)
    summary = dk.mix(str(root), to=str(tmp_path / "v1"), where="first is None and second is None", **HERE)
    told = [note for note in summary.notes if "chose their survivors each by itself" in note]
    assert bool(told) == is_told
    if first == {} and second.get("keep") == "newest":
        assert summary.counts["documents_out"] == (0 if is_told else 1)
        assert not told or "--name second --where 'first is None'" in told[0]
    alone = dk.mix(str(root), to=str(tmp_path / "v2"), where="first is None", **HERE)
    assert not any("survivors" in note for note in alone.notes)


def test_the_proposal_for_three_sets_leaves_no_note(tmp_path, monkeypatch):
    """Followed one by one, the proposals ended nowhere: each named one of the other sets alone, and the rule that the set had was lost."""
    root, text = tmp_path / "v0", " ".join(f"w{number}" for number in range(60))
    rows = [("a", text), ("b", f"{text} x"), ("a", f"{text} y"), ("c", text)]
    lines = [
        json.dumps({"id": one, "source": f"s{row}", "text": words}) for row, (one, words) in enumerate(rows)
    ]
    write_lines(root / "documents/a.jsonl", lines)
    dk.dedupe(str(root), **HERE)
    dk.dedupe(str(root), by="id", name="ids", where="exact is None", keep="longest", **HERE)
    dk.dedupe(str(root), how="fuzzy", where="source != 's9' or ids is None", keep="longest", **HERE)
    rule = "exact is None and ids is None and fuzzy is None"
    first = dk.mix(str(root), to=str(tmp_path / "v1"), where=rule, dry_run=True, **HERE)
    notes = [note for note in first.notes if "chose their survivors each by itself" in note]
    command = notes[0].partition("dolma-dask dedupe ... ")[2]
    assert (
        command
        == "--how fuzzy --name fuzzy --where '(source != '\"'\"'s9'\"'\"' or ids is None) and exact is None'"
    )
    options = ["--keep", "longest", "--overwrite", "--no-progress"]
    assert cli.main(["dedupe", str(root), *shlex.split(command), *options]) == 0
    second = dk.mix(str(root), to=str(tmp_path / "v1"), where=rule, **HERE)
    assert not [note for note in second.notes if "chose their survivors each by itself" in note]
