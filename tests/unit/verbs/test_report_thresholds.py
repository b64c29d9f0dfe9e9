"""The thresholds of a page: those of the selection, with the counts of what-if; or why they are left out."""

import json
import shutil

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import dolma_dask as dk
from dolma_dask.errors import InterruptedStageError
from dolma_dask.pages import page
from dolma_dask.questions.what_if.sums import CountDrops

from .conftest import write_lines
from .report_pages import LENGTH, QUIET, lines_of, page_of, stages


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Documents with lengths, and quantiles of these."""
    root = tmp_path_factory.mktemp("thresholds")
    write_lines(root / "v0/documents/a.jsonl.gz", lines_of(range(80)))
    dk.tag(str(root / "v0"), ["char_length_v1"], **QUIET)
    dk.quantiles(str(root / "v0"), [LENGTH], level="regular", **QUIET)
    dk.quantiles(str(root / "v0"), [LENGTH], level="strictest", name="newer", **QUIET)
    dk.filter(str(root / "v0"), **QUIET)
    return root


@pytest.fixture
def world(made, tmp_path):
    return shutil.copytree(made, tmp_path / "world")


def tables(content):
    return {table["title"]: table for table in content["results"] if table["section"] == "Thresholds"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, level, name",
    [
        ({"where": "quality.level >= 2"}, "strict", "quantiles"),
        ({"thresholds": "{}/v0/quantiles/quantiles.regular.json"}, "regular", "quantiles"),
    ],
    ids=["levels", "file"],
)
def test_they_are_those_of_the_selection(options, level, name, world):
    options = {key: value.format(world) for key, value in options.items()}
    if level == "regular":
        shutil.rmtree(world / "v0/_journal/quantiles")
        for path in (world / "v0/quantiles").glob("newer*"):
            path.unlink()
        dk.quantiles(str(world / "v0"), [LENGTH], level="regular", overwrite=True, **QUIET)
    dk.mix(str(world / "v0"), to=str(world / "v1"), **options, **QUIET)
    content, _ = page_of(world / "v1")
    expected = json.loads(
        json.dumps(dk.what_if(str(world / "v0"), level, name=name, examples=2, **QUIET).to_json())
    )
    for key in ("level", "groups", "rules", "levels", "overlap", "sentences", "examples"):
        assert content["thresholds"][key] == expected[key], key
    assert all(row["excerpt"] for row in content["thresholds"]["examples"])
    kept = tables(content)["What each level keeps"]
    assert kept["columns"] == ["level", "all", "even", "odd"]
    assert kept["rows"][0] == ["all documents", 80, 40, 40]
    assert [row[0] for row in kept["rows"][2:]] == ["regular", "strict", "even stricter", "strictest"]
    assert kept["rows"][2][1] > kept["rows"][5][1]
    (row,) = tables(content)["What each rule drops"]["rows"]
    assert [row[0], row[3]] == ["length", 80 - expected["groups"][0]["kept"]["documents"]]


@pytest.mark.parametrize(
    "where, lead", [("quality.level >= 1", "length is"), ("source == 'odd'", "With these bounds, length is")]
)
def test_bounds_that_selected_nothing_do_not_seem_to_be_the_rule(where, lead, world):
    dk.mix(str(world / "v0"), to=str(world / "v1"), where=where, **QUIET)
    content, _ = page_of(world / "v1")
    assert tables(content)["What each rule drops"]["caption"].startswith(f"{lead} the only rule: it drops ")


def test_numbers_of_a_rule_are_asked_about_and_not_those_of_quantiles(world):
    where = "length > 30 and source == 'odd'"
    dk.mix(str(world / "v0"), to=str(world / "v1"), where=where, **QUIET)
    content, _ = page_of(world / "v1")
    expected = json.loads(
        json.dumps(dk.what_if(str(world / "v0"), where=where, examples=0, **QUIET).to_json())
    )
    assert content["thresholds"]["groups"] == expected["groups"]
    kept = content["thresholds"]["groups"][0]["kept"]["documents"]
    assert kept == sum(row["kept_documents"] for row in content["sources"]), "those of the page"
    assert not tables(content), "the page shows what the conditions of its rule drop"
    shown = (world / "page.html").read_text()
    fold = shown.index("What other bounds would drop")
    outer = shown[:fold].rindex("<details")
    assert shown[:outer].count("<details") == shown[:outer].count("</details"), "in one fold"


def test_bounds_by_group_that_selected_are_named_and_not_spelled_out(world):
    options = {"thresholds": str(world / "v0/quantiles/quantiles.regular.json"), "where": "length > 30"}
    dk.mix(str(world / "v0"), to=str(world / "v1"), **options, **QUIET)
    content, _ = page_of(world / "v1")
    assert [row["rule"] for row in content["rules"]] == ["length > 30", "length within regular by source"]
    shown = (world / "page.html").read_text()
    assert "What other bounds would drop" in shown
    assert "were not selected by them" not in shown


@pytest.mark.parametrize("more", [None, "length > 30"])
def test_what_no_other_bound_drops_is_not_called_what_no_other_rule_drops(more, world, plain):
    options = {"thresholds": str(world / "v0/quantiles/quantiles.regular.json"), "where": more}
    dk.mix(str(world / "v0"), to=str(world / "v1"), **options, **QUIET)
    content, _ = page_of(world / "v1")
    table = tables(content)["What each rule drops"]
    assert ("no other bound drops" in table["columns"], "no other drops" in table["columns"]) == (
        bool(more),
        not more,
    )
    assert table["caption"].startswith("With these bounds alone, ") == bool(more)
    assert ("other conditions of the rule are not counted" in table["caption"]) == bool(more)


def test_tokens_are_estimated_by_those_that_were_made(world):
    model = models.WordLevel({"d": 0, "x": 1}, unk_token="x")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(world / "tokenizer.json"))
    dk.ragged(str(world / "v0"), str(world / "tokens"), tokenizer=str(world / "tokenizer.json"), **QUIET)
    content, _ = page_of(world / "v0", tokens=[str(world / "tokens")])
    made = stages(content)["ragged"]
    ratio = made["tokens"] / made["text_bytes"]
    assert content["thresholds"]["measure"].endswith(f"tokens are bytes x {ratio:.4g} (measured by ragged)")
    assert page_of(world / "v0", "without")[0]["thresholds"]["measure"].endswith("--tokenizer measures it)")


def test_a_page_without_thresholds(world):
    shutil.rmtree(world / "v0/quantiles")
    content, notes = page_of(world / "v0")
    assert content["thresholds"] is None
    assert not tables(content)
    assert not notes


def test_thresholds_that_cannot_be_asked_about_are_left_out_with_the_reason(world):
    shutil.rmtree(world / "v0/attributes/char_length_v1")
    shutil.rmtree(world / "v0/attributes/quality")
    content, notes = page_of(world / "v0")
    assert content["thresholds"] is None
    (note,) = (note for note in content["left_out"] if note.startswith("thresholds are left out: "))
    assert note in notes
    assert LENGTH in note


def test_ctrl_c_while_they_are_counted_stops_the_report(world, monkeypatch):
    def stop(self, task):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CountDrops, "count", stop)
        with pytest.raises(InterruptedStageError):
            page_of(world / "v0")
    assert not (world / "page.html").exists()
    assert page_of(world / "v0")[0]["thresholds"]


def test_the_page_holds_the_sliders_and_lets_their_script_alone_run(world):
    page_of(world / "v0")
    text = (world / "page.html").read_text()
    assert text.count("<iframe") == 1
    assert str(world) not in text
    assert page._policy([page.page_script()]).split("script-src ")[1].split(";")[0].strip("'") in text


def test_other_quantiles_make_another_page(world):
    stamp = {}
    for _ in range(2):
        page_of(world / "v0")
        stamp[(world / "page.html").stat().st_mtime_ns] = True
    assert len(stamp) == 1
    dk.quantiles(str(world / "v0"), [LENGTH], level="strict", name="newest", **QUIET)
    content, _ = page_of(world / "v0")
    assert content["thresholds"]["level"] == "strict"


@pytest.mark.slow
def test_levels_by_tails_of_their_own_and_of_other_thresholds(world):
    root = str(world / "v0")
    dk.filter(root, tails=[f"{LENGTH}=lower"], name="lower", **QUIET)
    dk.mix(root, to=str(world / "v1"), where="lower.level >= 2", **QUIET)
    content, _ = page_of(world / "v1")
    cuts = dk.thresholds(root, "strict", tails={LENGTH: "lower"})
    kept = dk.what_if(root, cuts, **QUIET).to_json()["groups"]
    assert content["thresholds"]["groups"] == kept
    assert kept[0]["kept"]["documents"] == 64
    dk.filter(root, [cuts], name="other", **QUIET)
    dk.mix(root, to=str(world / "v2"), where="other.level >= 1", **QUIET)
    content, notes = page_of(world / "v2")
    assert content["thresholds"] is None
    assert any("the levels of other are not those of quantiles/quantiles.json" in note for note in notes)
