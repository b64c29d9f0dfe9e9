"""Attribute sets with the same keys, such as two versions of a tagger's: ``set/key`` names a column of one of them wherever a column has a name; a name that may be of both is refused."""

import itertools
import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import ExpressionError
from dolma_dask.rules.values import endings, once_each, unknown_name

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
ROWS = 60
KEY = "exp__tox__toxicity"
OLD, NEW = f"toxicity-0/{KEY}", f"toxicity-1/{KEY}"


def scores(row):
    """Return the scores of both versions, and another attribute that the new one has alone."""
    return row / ROWS, (row * 7 % ROWS) / ROWS, row % 2


@pytest.fixture(params=["spans", "flat"])
def root(tmp_path, request):
    """Two shards with rows of either form: lists of spans, or bare numbers."""
    for shard in range(2):
        rows = range(shard, ROWS, 2)
        documents = [{"id": f"d{row}", "text": f"text {row}", "source": "s"} for row in rows]
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl.gz", map(json.dumps, documents))
        for version in range(2):
            lines = []
            for row in rows:
                values = {KEY: scores(row)[version]} | ({"other": scores(row)[2]} if version else {})
                if request.param == "spans":
                    values = {key: [[0, 7, value]] for key, value in values.items()}
                nested = {"attributes": values} if request.param == "spans" else values
                lines.append(json.dumps({"id": f"d{row}", "source": "s", **nested}))
            write_lines(tmp_path / f"v0/attributes/toxicity-{version}/{shard}.jsonl.gz", lines)
    return tmp_path / "v0"


def kept(root, where, to="v1", **options):
    dk.mix(str(root), to=str(root.parent / to), where=where, **options, **HERE)
    paths = (root.parent / to / "documents").rglob("*.gz")
    return {json.loads(line)["id"] for path in paths for line in read_lines(path)}


def expected(rule):
    return {f"d{row}" for row in range(ROWS) if rule(*scores(row))}


@pytest.mark.parametrize(
    "where",
    [
        "`toxicity-0/toxicity` > 0.4 and `toxicity-1/toxicity` < 0.2",
        f"`{OLD}` > 0.4 and `{NEW}` < 0.2",
        "`toxicity-0/tox__toxicity` > 0.4 and not `toxicity-1/toxicity` >= 0.2",
    ],
)
@pytest.mark.parametrize("sets", [(), ("toxicity-1", "toxicity-0")])
def test_one_rule_over_both(root, where, sets):
    assert kept(root, where, attributes=sets) == expected(lambda old, new, _: old > 0.4 and new < 0.2)


def test_beside_a_key_that_one_set_has(root):
    assert kept(root, "`toxicity-1/toxicity` < 0.5 and other == 1 and `toxicity-1/other` == 1") == expected(
        lambda _, new, other: new < 0.5 and other == 1
    )


@pytest.mark.parametrize("name", ["toxicity", KEY])
def test_a_name_of_both_is_refused_with_those_that_can_be_written(root, name):
    both = f"{name} is short for several columns: `{OLD}`, `{NEW}`; write one of them"
    with pytest.raises(ExpressionError, match=both):
        kept(root, f"{name} > 0.4")
    plain = both.replace("`", "")
    calls = [
        lambda: dk.quantiles(str(root), signals=[name], **HERE),
        lambda: dk.histogram(str(root), name, **HERE),
        lambda: dk.read_dataframe(str(root), columns=["id", name]),
        lambda: dk.dedupe(str(root), keep="highest", rank=name, **HERE),
    ]
    for call in calls:
        with pytest.raises(ExpressionError, match=plain):
            call()
    assert kept(root, f"{name} > 0.4", attributes=["toxicity-1"]) == expected(lambda _, new, other: new > 0.4)


def test_spellings_that_are_near(root):
    with pytest.raises(ExpressionError, match="needs backticks, such as `my-set/word_count`"):
        kept(root, "toxicity-0.toxicity > 0.4")
    with pytest.raises(ExpressionError, match=f"near it are: .*`{OLD}`"):
        kept(root, "`toxicity-0.toxicity` > 0.4")


def test_quantiles_what_if_and_thresholds(root):
    """Without names all signals are taken, each by a name of its own."""
    dk.quantiles(str(root), name="all", **HERE)
    table = json.loads((root / "quantiles/all.json").read_text())
    assert all(name in json.dumps(table) for name in ("other", OLD, NEW))
    dk.quantiles(str(root), signals=["toxicity-0/toxicity", "toxicity-1/toxicity"], level="strict", **HERE)
    answer = dk.what_if(str(root), "strict", **HERE)
    assert dk.dedupe(str(root), keep="highest", rank=NEW, name="e", **HERE).counts["duplicates"] == 0
    ids = kept(root, ~dk.duplicates("e") & dk.thresholds(str(root), "strict"))
    assert 0 < len(ids) < ROWS
    assert f"{len(ids)}" in str(answer)


def test_questions_and_frames(root):
    frame = dk.read_dataframe(str(root), columns=["id", "toxicity-0/toxicity", "other"]).compute()
    assert len(frame) == ROWS
    assert len(dk.histogram(str(root), "toxicity-1/toxicity", **HERE).frame())
    where = "`toxicity-0/toxicity` > 0.4 and `toxicity-1/toxicity` < 0.2"
    overlap = dk.rule_overlap(str(root), where, **HERE).frame()
    assert "toxicity-0" in str(overlap)


def test_a_report_shows_both(root):
    where = "`toxicity-0/toxicity` > 0.4 and `toxicity-1/toxicity` < 0.9"
    kept(root, where)
    page = root.parent / "v1.html"
    dk.report(str(root.parent / "v1"), to=str(page), **HERE)
    text = page.read_text()
    assert OLD in text
    assert NEW in text


def test_names():
    known = ["g__n", "a/x", "b/x", "a/g__n", "id"]
    assert once_each(known) == ["g__n", "a/x", "b/x", "id"]
    assert endings("e", [*known, "e/dup", "e/dup__cluster_size"]) == ["e/dup"], "the flag of a set"
    for name, found in {
        "n": ["g__n"], "a/n": ["a/g__n"], "a/x": ["a/x"], "x": ["a/x", "b/x"], "b/n": [], "c/x": [], "id": ["id"],
    }.items():  # fmt: skip
        assert [endings(name, order) for order in itertools.permutations(known)] == [found] * 120
    assert "a/x" in unknown_name("a/y", known, str)
    many = [f"signal{n:02}" for n in range(14)]
    assert unknown_name("?", many, str).endswith("signal09 and 4 more")


def test_thresholds_over_both_versions_say_which_is_which(root):
    """Their rules had one name, in the summary and in the reasons of dropped documents."""
    for path in (root / "documents").glob("*.gz"):
        lines = [json.loads(line) for line in read_lines(path)]
        write_lines(path, [json.dumps({**line, "source": f"s{row % 2}"}) for row, line in enumerate(lines)])
    for path in (root / "attributes").glob("*/*.gz"):
        lines = [json.loads(line) for line in read_lines(path)]
        write_lines(path, [json.dumps({**line, "source": f"s{row % 2}"}) for row, line in enumerate(lines)])
    cuts = dk.quantiles(str(root), [OLD, NEW], level="strict", by="source", **HERE)
    summary = dk.mix(str(root), to=str(root.parent / "v1"), where=cuts, **HERE)
    assert [rule.short.split(" within")[0] for rule in summary.rules] == [
        "toxicity-0/toxicity",
        "toxicity-1/toxicity",
    ]
