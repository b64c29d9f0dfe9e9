"""Words of the page about its numbers: the sentences of each chapter, and the plain words of conditions."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from dolma_dask.display import isolated
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.journal import RunRecord
from dolma_dask.pages import page
from dolma_dask.pages.highlights import PUBLISHED, beyond_published, highlights
from dolma_dask.pages.history import Step
from dolma_dask.pages.model import (
    Beyond,
    Example,
    QuarantineRow,
    ReportData,
    RuleRow,
    SourceRow,
    StageRow,
)
from dolma_dask.pages.recorded import QuarantineFile, quarantine_rows, unfinished
from dolma_dask.pages.story import chapters, costliest, totals
from dolma_dask.pages.survey import Findings, Survey
from dolma_dask.pages.views import funnel, kept_table, rule_table
from dolma_dask.pages.words import dropped_by
from dolma_dask.results.table import Table
from dolma_dask.rules.tally import OTHER_GROUPS, Tally
from dolma_dask.rules.where import parse
from dolma_dask.verbs.dedupe.summary import BY_SOURCE
from dolma_dask.verbs.validate.summary import REPORT, recorded_tables

RULES = [
    RuleRow("words >= 50", 80, 0.8, 20, 900, 5, 100, "words below 50"),
    RuleRow("fuzzy is None", 85, 0.85, 15, 4000, 12, 3000, "copies of another document (fuzzy)"),
    RuleRow("length < 9", 100, 1.0, 0, 0, 0, 0, "length of 9 or more"),
]
DATA = ReportData(
    "t",
    "d",
    "c",
    "v",
    stages=[StageRow("mix", 100, 68, 10, 7000, None, 2.0, cpu_seconds=3.0), StageRow("ragged", 68, 68, 20, 7000, 3500, 6.0, cpu_seconds=5.0)],
    sources=[SourceRow("web", 75, 8000, 60, 6500, 3000, (12, 3, 0)), SourceRow("books", 25, 2000, 8, 500, 500, (8, 12, 0))],
    rules=RULES,
    where="words >= 50 and fuzzy is None and length < 9",
    results=[Table("fuzzy in d, by source", BY_SOURCE, [("web", 75, 3, 0, 1, 2), ("books", 25, 12, 0, 1, 2)], section="Duplicates")],
)  # fmt: skip


def said(data: ReportData) -> dict[str, str]:
    return {name: " ".join(chapter.lead) for name, chapter in chapters(data).items()}


def test_each_chapter_says_what_its_numbers_mean():
    assert said(DATA) == {
        "sources": "100 documents from 2 sources came in, with 10.0 kB of text. The largest source, web, has 75 of them (75.0 %).",
        "problems": "Nothing: no shard failed, and every record could be read.",
        "rules": "68 of 100 documents were kept (68.0 %), with 7.00 kB of 10.0 kB of text (70.0 %). "
        "The rule that cost most is “fuzzy is None”. It drops copies of another document (fuzzy): 15 documents (15.0 %). "
        "No other rule drops 12 of these: without it, they would come back, with 3.00 kB of text. "
        "Of the sources, books loses most by this rule: 12 of 25 documents (48.0 %).",
        "duplicates": "fuzzy in d marks 15 of 100 documents as copies (15.0 %).",
        "tokens": "68 documents became 3,500 tokens: 2.00 bytes of text for each.",
        "cost": "2 stages took 8.00 s of work and 8.00 s of CPU time, and wrote 30 B. The longest was ragged, with 6.00 s (75.0 %).",
    }


def test_what_is_not_known_is_not_said():
    nothing = ReportData("t", "d", "c", "v")
    assert said(nothing) == {
        "sources": "Nothing is known of the documents.",
        "problems": "Nothing: no shard failed, and every record could be read.",
    }
    unknown = replace(
        nothing, stages=[StageRow("convert")], sources=[SourceRow("", 0)], rules=[RuleRow("filter", 3, 0.5)]
    )
    for text in said(unknown).values():
        assert "None" not in text
        assert "–" not in text
    without_text = replace(DATA, sources=[replace(row, kept_text_bytes=None) for row in DATA.sources])
    assert said(without_text)["rules"].startswith("68 of 100 documents were kept (68.0 %). The rule")


def test_verbs_that_are_unfinished_are_said():
    def run(**more: Any) -> RunRecord:
        return RunRecord("r", "tag", {}, ("attributes/a",), 1.0, **more)

    def words(*runs: RunRecord) -> list[str]:
        return list(unfinished([Step("tag", "/private/v0", runs, ())]))

    assert words(run(finished=2.0)) == words(run(), run(finished=2.0)) == []
    assert words(run(finished=2.0), run()) == ["The last tag of v0 was stopped or still goes on."]
    (left,) = words(run(finished=2.0, missing=1))
    assert left == "tag of v0 left 1 file undone (failures, --only, --share or --prune)."
    other = msgspec.structs.replace(run(), writes=("attributes/b",))
    assert len(words(run(), other, run(finished=2.0))) == 1, "each for what it writes"
    data = replace(DATA, unfinished=[left])
    assert said(data)["problems"] == left
    assert chapters(data)["problems"].is_alarm
    assert '<p class="big">unfinished</p>' in page.render(data)


def test_tiles_count_the_documents_of_verbs_that_make_rows():
    stages = [StageRow("convert", 100, 100, text_bytes=10), StageRow("dedupe", 150, 150, text_bytes=15)]
    found = totals(replace(DATA, stages=stages, sources=[]))
    assert (found.came, found.left, found.text_before, found.text) == (100, 100, 10, 10)
    kept = totals(
        replace(DATA, stages=[StageRow("tag", 50, 50), StageRow("mix", 100, 60), StageRow("dedupe", 30, 30)])
    )
    assert (kept.came, kept.left) == (100, 60)
    looked_at = totals(replace(DATA, stages=[StageRow("tag", 50, 50)]))
    assert (looked_at.came, looked_at.left, looked_at.text) == (100, 100, 10_000), "of the sources"
    assert funnel(stages) == []


def test_shares_are_of_documents_and_not_of_raw_records():
    raw = [StageRow("convert", 50, 100, bad_records=2), StageRow("tag", 100, 100, bad_records=3)]
    split = replace(DATA, stages=[*raw, StageRow("mix", 100, 68, bad_records=3)], origin="v0")
    found = totals(split)
    assert (found.came, found.left, found.bad) == (100, 68, 5), "a bad row that three verbs met is one"
    assert totals(replace(split, stages=raw, sources=[])).came == 100
    assert said(split)["sources"].startswith(
        "50 records of raw files became 100 documents. 100 documents from 2 sources are what v0 has, with"
    )
    assert "68.0 % of 100 in <bdi>v0</bdi>" in page.render(split)


def test_findings_come_first_each_with_the_command_that_changes_it():
    data = replace(
        DATA,
        dataset="corpus/v1",
        origin="v0",
        sources=[*DATA.sources, SourceRow("it's", 10, 700, 1, 50, None, (7, 2, 0))],
        beyond=[Beyond("g__g__word_count", ">=", 50.0, 9, 0.13), Beyond("symbols", "<=", 0.1, 2, 0.03)],
    )
    lost, costly, junk, more = highlights(data, {"g__g__word_count": "word_count"})
    rule = "words >= 50 and fuzzy is None and length < 9"
    assert lost.text == (
        "Source it's nearly vanishes: 1 of 10 documents are kept (10.0 %); most fall to “words >= 50” (7)."
    )
    where = rule.replace("words >= 50", '(words >= 50 or source == "it\'s")')
    assert shlex.split(lost.command) == [
        "dolma-dask",
        "mix",
        "corpus/v0",
        "--where",
        where,
        "--to",
        "corpus/v2",
    ]
    parse(where)
    assert costly.text == (
        "“fuzzy is None” costs most, and drops flagged documents alone; of the other rules “words >= 50” costs most: 5 documents with 100 B of text "
        "(0.9 % of what came in) that no other rule drops. Without it:"
    )
    assert "--where 'fuzzy is None and length < 9'" in costly.command
    assert junk.text.startswith(
        "9 kept documents (13.0 %) have word_count below 50, the bound of the Gopher paper."
    )
    assert f"--where '{rule} and word_count >= 50'" in junk.command
    assert "symbols <= 0.1 (2)" in more.text
    shown = page.render(data)
    assert shown.index('id="findings"') < shown.index('id="sources"')
    unlooked = highlights(replace(data, results=[], beyond=[], sources=DATA.sources), {})[-1]
    assert unlooked.command == "dolma-dask dedupe corpus/v0 --how fuzzy"
    left = highlights(replace(data, where="words >= 50", rules=RULES[:1], sources=DATA.sources), {})[1]
    assert left.text == "fuzzy marks 15 documents as copies, and no rule drops them."
    spelled_by_group = replace(
        DATA, rules=[replace(RULES[0], rule="length within regular by source"), RULES[1]]
    )
    assert [one.command for one in highlights(spelled_by_group, {})] == [
        "dolma-dask what-if d --to what_if.html"
    ]
    empty = replace(DATA, sources=[replace(row, kept_documents=0) for row in DATA.sources])
    assert highlights(empty, {})[0].text == "Nothing is kept of 100 documents."
    assert highlights(ReportData("t", "d", "c", "v"), {}) == []


def test_each_command_makes_a_version_of_its_own():
    beyond = [Beyond("g__g__word_count", ">=", 50.0, 9, 0.13)]
    lost = SourceRow("law", 10, 700, 1, 50, None, (7, 2, 0))
    data = replace(DATA, dataset="corpus/v1", origin="v0", sources=[*DATA.sources, lost], beyond=beyond)
    commands = [shlex.split(one.command) for one in highlights(data, {}) if "mix" in one.command]
    assert [words[-1] for words in commands] == ["corpus/v2", "corpus/v3", "corpus/v4"]


@pytest.mark.parametrize(
    ("rule", "plain"),
    [
        ("fuzzy is None", ""),
        ("fuzzy is None or source == 'web'", ""),
        ("exact is None", "copies of another document (exact)"),
        ("takedown is None", "documents of a block list (takedown)"),
    ],
)
def test_flagged_documents_are_never_given_back(rule, plain):
    flags = replace(RULES[1], rule=rule, plain=plain)
    lost = SourceRow("law", 10, 700, 1, 50, None, (2, 7))
    data = replace(DATA, rules=[RULES[0], flags], sources=[*DATA.sources, lost], where=f"({rule})")
    spelled = f"({rule})" if " or " in rule else rule
    wheres = [one.where for one in highlights(data, {}) if one.where]
    assert wheres
    assert all(spelled in where.split(" and ") for where in wheres)
    alone = replace(DATA, rules=[flags], where=rule)
    (only,) = (one for one in highlights(alone, {}) if "costs most" in one.text)
    assert not only.command


def test_both_sentences_on_the_costliest_rule_name_the_same():
    fewer = replace(RULES[0], rule="length < 9", only=2, only_bytes=9000, dropped_bytes=9000)
    data = replace(DATA, rules=[fewer, replace(RULES[0], rule="words >= 50")], results=[])
    (found,) = (one.text for one in highlights(data, {}) if "costs most" in one.text)
    assert found.startswith("“words >= 50” costs most: 5 documents")
    assert "The rule that cost most is “words >= 50”" in said(data)["rules"]


def test_a_text_leads_to_a_command_or_ends():
    by_group = replace(RULES[0], rule="length within regular by source")
    beyond = [Beyond("w", ">=", 50.0, 9, 0.13), Beyond("x", "<=", 0.1, 40, 0.9)]
    for rules in (RULES, [by_group], []):
        lost = SourceRow("law", 10, 700, 1, 50, None, (7, 2, 0)[: len(rules)])
        for results in (DATA.results, []):
            data = replace(DATA, rules=rules, results=results, beyond=beyond, sources=[*DATA.sources, lost])
            for one in highlights(data, {}):
                assert one.text.endswith(":") <= bool(one.command), one.text
                assert one.text.endswith((".", ":"))


def test_nobody_is_told_to_drop_most_of_what_is_kept():
    most = Beyond("x", "<=", 0.2, 60, 0.88)
    (alone,) = (one for one in highlights(replace(DATA, beyond=[most]), {}) if "Gopher" in one.text)
    assert not alone.command
    assert alone.text == "Bounds of the Gopher paper, with the documents beyond each: x <= 0.2 (60)."
    found = highlights(replace(DATA, beyond=[most, Beyond("w", ">=", 50.0, 9, 0.13)]), {})
    assert [one.where for one in found[-2:]] == [f"{DATA.where} and w >= 50", None]
    assert "rps_doc_frac_no_alph_words" not in PUBLISHED, "its tokens include punctuation"


def test_what_was_wrong_is_among_the_findings():
    (stage, *others) = DATA.stages
    failed = Table("v0", (), (), "2 problems.", section="Checks", is_alarm=True)
    passed = Table("v1", (), (), "Nothing is wrong.", section="Checks")
    stages = [replace(stage, bad_records=3, failed=1), *others]
    found = highlights(replace(DATA, stages=stages, results=[*DATA.results, failed, passed]), {})
    assert [one.text for one in found[:3]] == [
        "1 shard failed: see what was wrong.",
        "3 records could not be read and are not among the documents.",
        "Checks of v0 have found something: 2 problems.",
    ]


def test_a_rule_that_costs_no_text_is_no_finding():
    empty = replace(RULES[0], dropped_bytes=0, only_bytes=0)
    assert not any("costs most" in one.text for one in highlights(replace(DATA, rules=[empty]), {}))


def test_bounds_that_hold_together_with_other_conditions_are_said():
    one = signal_histogram("words", Histogram.of(np.arange(9.0)))
    cut = replace(one, is_cut=True, partial=((">=", 2.0), (">=", 5.0), ("<=", 7.0)))
    data = replace(DATA, signals=[cut, replace(one, key="other")])
    assert "2 signals of each document are known, 1 of which a rule cuts." in said(data)["signals"]
    assert "such as groups, the rule keeps &gt;= 2 to 5 and &lt;= 7." in page.render(data)


def test_documents_beyond_published_bounds_are_counted():
    kept = {
        "g__word_count": Histogram.of([10, 49, 50, 51]),
        "g__symbol_to_word_ratio": Histogram.of([0.1, 0.05, 0.11]),
        "g__other": Histogram.of([1.0]),
    }
    names = {key: key.removeprefix("g__") for key in kept}
    found = beyond_published(kept, names, frozenset())
    assert [(one.key, one.documents, one.share) for one in found] == [
        ("g__word_count", 2, 0.5),
        ("g__symbol_to_word_ratio", 1, 1 / 3),
    ]
    assert [one.key for one in beyond_published(kept, names, frozenset(["g__word_count"]))] == [
        "g__symbol_to_word_ratio"
    ]


def test_bad_records_have_a_file_a_row_and_a_source(tmp_path):
    lines = [{"url": "/private/raw/web.jsonl", "row": row, "reason": "invalid_json"} for row in (7, 9)]
    path = tmp_path / "a.jsonl.gz.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    (row,) = quarantine_rows([QuarantineFile("convert", "a.jsonl.gz", str(path))], {"a": "web"})
    assert row == QuarantineRow("convert", "invalid json", 2, "web.jsonl", 7, "web")


def test_checks_of_an_unfinished_dataset_are_one_true_sentence():
    def caption(*notes: str) -> str:
        scope = {"files": 2, "files_of": 2, "against": None}
        record = SimpleNamespace(unit=REPORT, info={"problems": {}, "scope": scope, "notes": notes})
        (table,) = recorded_tables(SimpleNamespace(root="/private/v0", records=[record]))  # type: ignore[arg-type]
        return table.caption

    assert caption() == "Looked at all files and every row in them: nothing is wrong."
    assert caption("/private/v0 is not complete: convert left 1 of its files out") == (
        "Looked at all files and every row in them: what is there is right; v0 is not complete: convert left 1 of its files out."
    )


def test_documents_pass_the_rule_where_more_than_it_decided():
    sampled = replace(DATA, stages=[StageRow("mix", 100, 30)])
    assert said(sampled)["rules"].startswith("68 of 100 documents pass the rule (68.0 %), with")
    one = replace(sampled, sources=[SourceRow("web", 1, None, 1)], rules=RULES[:1])
    assert said(one)["rules"] == "1 of 1 document passes the rule (100 %)."


def test_sources_that_are_not_listed_are_not_counted_as_one_and_long_names_end():
    rows = [SourceRow("x" * 5000, 9), SourceRow("b", 5), SourceRow(OTHER_GROUPS, 700)]
    shown = said(replace(DATA, sources=rows))["sources"]
    assert "714 documents from more than 2 sources came in" in shown
    assert f"The largest source, {'x' * 120} ..., has 9 of them" in shown


def test_one_is_not_many():
    rule = RuleRow("words >= 50", 1, 0.5, 1, 9, 1, 9, "words below 50")
    one = replace(
        DATA,
        stages=[StageRow("mix", 2, 1, bad_records=1, failed=1)],
        sources=[SourceRow("web", 2, None, 1, None, None, (1, 1))],
        rules=[rule, replace(rule, only=0)],
        quarantine=[QuarantineRow("mix", "x", 1)],
        results=[Table("fuzzy in d, by source", BY_SOURCE, [("web", 2, 1, 0, 1, 2)], section="Duplicates")],
    )
    words = said(one)
    assert words["problems"] == (
        "1 shard failed. The output is incomplete until it is done: the same command takes up where it stopped. "
        "1 record of the 2 that mix read could not be read and stands in the quarantine."
    )
    assert words["rules"].startswith("1 of 2 documents was kept (50.0 %). The rule")
    assert words["rules"].endswith(
        "No other rule drops it: without this rule, it would come back, with 9 B of text."
    )
    assert words["duplicates"] == "fuzzy in d marks 1 of 2 documents as a copy (50.0 %)."
    without = replace(one, stages=[StageRow("mix", 2, 1)], sources=[], rules=[replace(rule, only=0)] * 2)
    assert said(without)["rules"] == "1 of 2 documents was kept (50.0 %)."
    other = replace(one, rules=[replace(rule, only=0)] * 2)
    assert said(other)["rules"].endswith("1 document (50.0 %). Other rules drop it too.")
    some = replace(one, rules=[replace(rule, dropped=2), replace(rule, only=0)])
    assert "No other rule drops 1 of these: without this rule, it would come back" in said(some)["rules"]


def test_names_from_right_to_left_move_no_word():
    name, shown = "\u05d0\u05d1 7\u202e", "\u2068\u05d0\u05d1 7\ufffd\u2069"
    sources = [replace(row, source=name + row.source) for row in DATA.sources]
    plain = dropped_by(parse("source == '\u05d0'"), {})
    assert plain == "source other than \u2068'\u05d0'\u2069"
    words = said(replace(DATA, sources=sources, rules=[replace(RULES[1], rule=name), *RULES[:1]]))
    bare = [text.replace(shown[:-1], "") for text in words.values()]
    assert "\u05d0" not in "".join(bare), "every name stands between isolates"
    assert "The largest source, \u2068\u05d0\u05d1 7\ufffdweb\u2069, has" in words["sources"]
    assert isolated("web") == "web"


def test_the_rule_that_costs_most_comes_first():
    assert [row.rule for row in costliest([*RULES, RuleRow("filter", 3, 0.5)])] == [
        "fuzzy is None",
        "words >= 50",
        "length < 9",
    ]
    shown = rule_table(DATA)
    assert [(row[1], row[4]) for row in shown.rows] == [(15, 12), (20, 5), (0, 0)]
    overlapping = replace(DATA, rules=[replace(row, only=0) for row in RULES])
    assert "20 documents (20.0 %). Other rules drop all of these too." in said(overlapping)["rules"]


def test_the_sources_that_the_costliest_rule_falls_on_are_named():
    def last(*dropped: int) -> str:
        rows = [replace(row, dropped=(0, drop, 0)) for row, drop in zip(DATA.sources, dropped, strict=True)]
        return chapters(replace(DATA, sources=rows))["rules"].lead[-1]

    assert last(9, 6) == (
        "Of the sources, web loses most documents by this rule (9), books the largest share: 6 of 25 documents (24.0 %)."
    )
    assert last(15, 0) == "Of the sources, web loses most by this rule: 15 of 75 documents (20.0 %)."
    alone = replace(DATA, sources=[replace(DATA.sources[0], dropped=(20, 15, 0))])
    assert "Of the sources" not in said(alone)["rules"]


def test_what_each_rule_drops_of_each_source():
    kept = kept_table(DATA)
    assert kept is not None
    assert [column.heading for column in kept.columns[-2:]] == [
        "copies of another document (fuzzy)",
        "words below 50",
    ]
    assert [[round(cell, 2) for cell in row[-2:]] for row in kept.known.rows] == [[0.04, 0.16], [0.48, 0.32]]
    assert kept_table(replace(DATA, sources=[SourceRow("web", 75)])) is None


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("a__b__words >= 50", "words below 50"),
        ("0.5 < ratio", "ratio of 0.5 or less"),
        ("ratio <= 0.1", "ratio above 0.1"),
        ("source == 'web'", "source other than 'web'"),
        ("exact is None", "copies of another document (exact)"),
        ("banned is None", "documents of a block list (banned)"),
        ("other is None", "documents with a value of other"),
        ("other is not None", "documents without a value of other"),
        ("a > 1 or b > 2", ""),
    ],
)
def test_conditions_in_plain_words(rule, expected):
    assert dropped_by(parse(rule), {"exact": "dedupe", "banned": "block"}) == expected


def test_findings_add_up_over_shards():
    drops = Tally(1)
    drops.count(np.array([[True, False]]), np.array([10, 5]))
    part = Findings(drops=drops, single_sources={"a": "web"})
    found = sum([part] * 3, Survey(parts=(parse("a > 1"),)).start())
    assert found.drops.dropped.tolist() == [[3, 30]]
    assert found.drops.kept == (3, 15)
    assert found.single_sources == {"a": "web"}


def test_the_example_in_the_repository_is_a_page_of_today():
    example = Path(__file__).parents[3] / "reports/example.html"
    with example.open(encoding="utf-8") as file:
        head = file.read(4096)
    assert f'<meta name="dolma-dask-page" content="{page.stamp()}">' in head, (
        f"{example} was made by other templates or another VERSION; make it again: make demo report-preview"
    )
    assert example.with_suffix(".png").stat().st_size < 300_000


def test_examples_say_where_copies_are_shown():
    near = Example("just inside", "words >= 50", "a__b__words", 50.0, "s", "id", "a.jsonl", 0, "text")
    flags = Table("fuzzy in v0, by source", BY_SOURCE, [("s", 9, 1, 1, 1, 2)], section="Duplicates")
    where = "Copies are shown in the next chapter"
    assert where in " ".join(chapters(replace(DATA, examples=[near], results=[flags]))["examples"].lead)
    assert where not in " ".join(chapters(replace(DATA, examples=[near], results=[]))["examples"].lead)
    plain = replace(DATA, examples=[near], results=[flags], rules=RULES[:1])
    assert where not in " ".join(chapters(plain)["examples"].lead)
