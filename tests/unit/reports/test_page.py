import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dolma_dask.verbs.report import page, plots
from dolma_dask.verbs.report.histogram import Histogram, signal_histogram
from dolma_dask.verbs.report.model import (
    Example,
    FailureRow,
    QuarantineRow,
    ReportData,
    ResultTable,
    RuleRow,
    SignalHistogram,
    SourceRow,
    StageRow,
)

HOSTILE = "</script><script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(1)>{{7*7}}<!--]]>&amp;"


def report(text: str = "plain", signals: int = 2) -> ReportData:
    rng = np.random.default_rng(0)
    values = np.round(rng.lognormal(5, 1, 500))
    return ReportData(
        title=f"title {text}",
        dataset=f"dataset {text}",
        created=f"created {text}",
        version=f"1.0 {text}",
        stages=[
            StageRow(f"tag {text}", 1500, 1400, 2_000_000, 5_000_000, None, 12.5, 3, 0, 100, f"note {text}"),
            StageRow("mix", 1400, 700, 1_000_000, 2_500_000, 600_000, 2.5, 3, 1),
        ],
        sources=[SourceRow(f"source {text}", 1400, 5_000_000, 700, 2_500_000, 600_000)],
        signals=[
            signal_histogram(
                f"a__b__signal {text} {i}",
                Histogram.of(values),
                Histogram.of(values[values >= 50]),
                quantiles={0.5: 148.0, 0.9: 500.0},
                threshold=[(f">= {text}", 50.0)],
            )
            for i in range(signals)
        ],
        rules=[RuleRow(f"rule {text}", 350, 0.25), RuleRow("other", 0, 0.0)],
        examples=[
            Example("just inside", f"rule {text}", f"a__b__{text}", 50.0, f"s {text}", f"id {text}", f"f {text}", 7, f"In {text}"),
            Example("just outside", f"rule {text}", f"a__b__{text}", 49.0, f"s {text}", f"id {text}", f"f {text}", 8, f"Out {text}"),
        ],
        where=f"where {text}",
        failures=[FailureRow(f"mix {text}", f"shard {text}", f"error {text}")],
        quarantine=[QuarantineRow(f"tag {text}", f"reason {text}", 100)],
        results=[
            ResultTable("Duplicates", f"by source {text}", (f"source {text}", "documents"), [(f"web {text}", 1234)], f"caption {text}"),
            ResultTable("Checks", f"checks {text}", ("kind", "share"), [(f"kind {text}", 0.5), ("other", None)], is_alarm=True),
            ResultTable("Duplicates", f"clusters {text}", ("id",), []),
        ],
    )  # fmt: skip


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._script: dict[str, str | None] | None = None

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs) if tag == "script" else None

    def handle_data(self, data):
        if self._script is None:
            self.text.append(data)
        else:
            self.scripts.append((self._script, data))

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


def shape(reader: Reader) -> list[tuple[str, list[str]]]:
    return [(tag, sorted(attrs)) for tag, attrs in reader.tags if tag != "wbr"]


def test_hostile_text_changes_no_element():
    tame, wild = read(page.render(report())), read(page.render(report(HOSTILE)))
    assert shape(wild) == shape(tame)
    assert [attrs for attrs, _ in wild.scripts] == [attrs for attrs, _ in tame.scripts]
    shown = "".join(wild.text)
    for part in (
        "title",
        "dataset",
        "created",
        "note",
        "source",
        "rule",
        "id",
        "In",
        "Out",
        "where",
        "error",
        "reason",
    ):
        assert f"{part} {HOSTILE}" in shown


def test_hostile_text_is_in_no_script_or_figure():
    for attrs, script in read(page.render(report(HOSTILE))).scripts:
        assert "alert(1)" not in script
        assert "evil.example" not in script
        if attrs.get("type") == "application/json":
            assert not set("<>&") & set(script)
            json.loads(script)


def test_script_json_cannot_close_its_element():
    text = {"title": HOSTILE}
    assert not set("<>&") & set(page.script_json(text))
    assert json.loads(page.script_json(text)) == text


def test_nothing_is_loaded_from_anywhere():
    for tag, attrs in read(page.render(report(HOSTILE))).tags:
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert (attrs.get(name) or "#").startswith("#") or attrs[name] == "data:,", (tag, attrs)
    style = page._part("style.css")
    assert "url(" not in style
    assert "@import" not in style


def test_policy_names_each_script_and_no_other():
    html = page.render(report())
    reader = read(html)
    policy = next(a["content"] for t, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    run = [script for attrs, script in reader.scripts if attrs.get("type") is None]
    digests = ["'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in run]
    assert f"script-src {' '.join(digests)};" in policy
    assert policy.startswith("default-src 'none';")
    assert "\r" not in html


def test_equal_data_gives_equal_bytes():
    assert page.render(report()) == page.render(report())
    assert page.write_json(report()) == page.write_json(report())


def test_bokeh_is_there_once_and_only_for_plots():
    assert len(page.render(report(signals=0))) < 60_000
    one, three = page.render(report(signals=1)), page.render(report(signals=3))
    assert 1_000_000 < len(one) < 1_500_000
    assert len(three) - len(one) < 60_000


def test_figures_have_unique_ids():
    names = [item["root_id"] for item in plots.figure_items(list(report(signals=3).signals))]
    assert len(set(names)) == 3


def text_of(html: str) -> str:
    return re.sub(r"[ \n]+", " ", "".join(read(html).text))


def test_numbers_of_the_run():
    shown = text_of(page.render(report()))
    for part in (
        "46.7 % of 1,500",
        "2.50 MB",
        "600,000",
        "15.0 s",
        "1 failed shard, 100 bad records",
        "matches nothing",
        "400 kB/s",
    ):
        assert part in shown
    assert "4.17 bytes of text per token" in shown


def test_quiet_run_has_no_problem_section():
    data = ReportData("t", "d", "c", "v", stages=[StageRow("tag", 10, 10)])
    html = page.render(data)
    assert 'id="problems"' not in html
    assert "none" in text_of(html)
    assert 'id="problems"' in page.render(
        ReportData("t", "d", "c", "v", quarantine=[QuarantineRow("tag", "x", 0)])
    )


def test_what_a_reader_must_know_stands_with_the_rules_also_without_any():
    html = page.render(ReportData("t", "d", "c", "v", remarks=["mix <b>wrote</b> 5"]))
    assert '<section id="rules"' in html
    assert '<a href="#rules">' in html
    assert '<p class="remark">mix &lt;b&gt;wrote' in html
    assert 'id="rules"' not in page.render(ReportData("t", "d", "c", "v"))


EMPTY = SignalHistogram("a__b__c", np.empty(0), np.empty(0, np.int64), nulls=3)


@pytest.mark.parametrize(
    "data",
    [
        ReportData("t", "d", "c", "v"),
        ReportData(
            "t",
            "d",
            "c",
            "v",
            stages=[StageRow("tag", 0, 0, 0, 0, 0, 0.0, 0)],
            sources=[SourceRow("s", 0, 0, 0, 0, 0)],
        ),
        ReportData(
            "t",
            "d",
            "c",
            "v",
            stages=[StageRow("ragged")],
            signals=[EMPTY],
            rules=[RuleRow("r", 0, math.nan)],
        ),
        ReportData(
            "t", "d", "c", "v", stages=[StageRow("a"), StageRow("b", 5, 9, 1, 1, 1, 1.0, 1)], where="x > 1"
        ),
        ReportData(
            "t" * 5000,
            "d",
            "c",
            "v",
            examples=[Example("just inside", "r", "k", None, "s", "i" * 10_000, "f", 0, "")],
        ),
    ],
    ids=["nothing", "zero documents", "no values", "unknown numbers", "very long"],
)
def test_edge_cases(data):
    html = page.render(data)
    assert len(html) < 100_000  # no plot, no library
    assert "nan" not in text_of(html).lower().replace("nancy", "")
    content = json.loads(page.write_json(data), parse_constant=lambda name: pytest.fail(name))
    assert content["title"] == data.title


def test_many_signals_have_an_index_and_a_search():
    empty = [SignalHistogram(f"a__b__{i}", np.empty(0), np.empty(0, np.int64)) for i in range(60)]
    html = page.render(ReportData("t", "d", "c", "v", signals=empty))
    assert html.count('<article id="signal-') == 60
    assert all(f'href="#signal-{i}"' in html for i in range(1, 61))
    assert '<input id="find" type="search"' in html
    assert '<input id="find"' not in page.render(report(signals=3))


def test_characters_that_html_cannot_hold():
    data = ReportData("a\x00b\ud800c\x1b[0m", "d", "c", "v")
    html = page.render(data)
    html.encode()
    assert "a\N{SYMBOL FOR NULL}b\N{REPLACEMENT CHARACTER}c\N{SYMBOL FOR ESCAPE}[0m" in html
    assert json.loads(page.write_json(data))["title"] == "a\x00b\N{REPLACEMENT CHARACTER}c\x1b[0m"


@given(st.text(), st.text(), st.text())
@settings(max_examples=60, deadline=None)
def test_any_text_is_shown_as_it_is(title, key, excerpt):
    data = ReportData(
        title, "d", "c", "v", signals=[SignalHistogram(key, np.empty(0), np.empty(0, np.int64))],
        examples=[Example("just outside", title, key, 1.0, "s", key, "f", 0, excerpt)],
    )  # fmt: skip
    html = page.render(data)
    reader = read(html)
    assert shape(reader) == shape(read(page.render(ReportData("t", "d", "c", "v", signals=[EMPTY], examples=[Example("just outside", "r", "k", 1.0, "s", "i", "f", 0, "e")]))))  # fmt: skip
    assert page.visible(excerpt) in "".join(reader.text)


@pytest.mark.parametrize(
    "given_name, shown",
    [
        ("wiki/v1", "wiki/v1"),
        ("/home/someone/data/wiki/", "wiki"),
        ("file:///home/someone/data/wiki", "wiki"),
        ("s3://corpus/wiki/v1", "s3://corpus/wiki/v1"),
        ("s3://key:secret@corpus/wiki", "s3://corpus/wiki"),
        ("", ""),
    ],
)
def test_dataset_name_shows_no_private_path(given_name, shown):
    data = ReportData("t", given_name, "c", "v")
    assert page.public_name(given_name) == shown
    assert json.loads(page.write_json(data))["dataset"] == shown
    assert "someone" not in page.render(data)
    assert "secret" not in page.render(data)


def test_json_has_the_same_content():
    data = report(HOSTILE)
    content = json.loads(page.write_json(data))
    assert (content["format"], content["format_version"]) == ("dolma_dask.report", 1)
    assert [stage["verb"] for stage in content["stages"]] == [stage.verb for stage in data.stages]
    signal = content["signals"][0]
    assert signal["counts"] == data.signals[0].counts.tolist()
    assert signal["edges"] == data.signals[0].edges.tolist()
    assert signal["quantiles"] == {"0.5": 148.0, "0.9": 500.0}
    assert signal["threshold"] == [[f">= {HOSTILE}", 50.0]]
    assert content["examples"][1]["excerpt"] == f"Out {HOSTILE}"


def test_json_of_infinite_numbers():
    data = ReportData("t", "d", "c", "v", examples=[Example("just inside", "r", "k", v, "s", "i", "f", 0, "") for v in (math.inf, -math.inf, math.nan)])  # fmt: skip
    assert [e["value"] for e in json.loads(page.write_json(data))["examples"]] == [
        "Infinity",
        "-Infinity",
        None,
    ]


# ------------------------------------------------------------------------------------------------ plots

values = st.lists(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 5000).map(float)), min_size=1
)


@given(values)
@settings(deadline=None)
def test_positions_and_ticks_stay_in_the_plot(numbers):
    signal = signal_histogram("k", Histogram.of(numbers))
    places = plots.positions(signal.edges, signal)
    assert (np.diff(places) > 0).all()
    inside = plots.positions(np.array(numbers), signal)
    assert ((inside >= places[0]) & (inside <= places[-1])).all()
    if signal.scale == "log":
        assert places.tolist() == list(range(len(signal.edges)))
        ticks = plots.log_ticks(signal)
        assert ticks == sorted(set(ticks))
        assert len(ticks) <= 3 * plots.MOST_TICKS
        assert all(plots.inside(tick, signal) for tick in ticks)


def test_log_ticks_are_round():
    signal = signal_histogram("k", Histogram.of(np.round(np.random.default_rng(0).lognormal(6, 1.5, 20_000))))
    ticks = plots.log_ticks(signal)
    assert {0.0, 100.0, 1000.0} <= set(ticks)
    assert all(tick == 0 or f"{tick:e}"[0] in "125" for tick in ticks)


def test_a_figure_holds_counts_and_bounds_and_no_text_of_the_data():
    signal = report("NAME").signals[0]
    (item,) = plots.figure_items([signal])
    text = json.dumps(item)
    assert "NAME" not in text
    assert json.dumps(signal.counts.tolist()) in text
    assert signal.kept_counts is not None
    assert json.dumps(signal.kept_counts.tolist()) in text
    assert '"name": "bound"' in text


def test_a_bound_beyond_the_values_is_said_not_drawn():
    signal = signal_histogram("k", Histogram.of([1.0, 2.0, 3.0]), threshold=[("<=", 99.0)])
    assert '"name": "bound"' not in json.dumps(list(plots.figure_items([signal])))
    assert "<=\N{NO-BREAK SPACE}99 (beyond the values seen)." in text_of(
        page.render(ReportData("t", "d", "c", "v", signals=[signal]))
    )


def test_examples_are_grouped_by_rule():
    cards = [
        Example(kind, rule, "k", 1.0, "s", "i", "f", 0, "")
        for rule in "ab"
        for kind in ("just inside", "just outside")
    ]
    groups = page.example_groups(cards)
    assert [(group.rule, len(group.inside), len(group.outside)) for group in groups] == [
        ("a", 1, 1),
        ("b", 1, 1),
    ]


def test_funnel_counts_from_the_first_known_number():
    rows = page.funnel([StageRow("convert", None, 200), StageRow("mix", 200, 50, text_bytes=10)])
    assert [(row.verb, row.documents.share, row.documents.width) for row in rows] == [
        ("convert", 1.0, 100.0),
        ("mix", 0.25, 25.0),
    ]
    assert [row.text.share for row in rows] == [None, 1.0]


def test_the_records_alone_need_no_bokeh():
    code = "import sys, dolma_dask.verbs.report.histogram, dolma_dask.verbs.report.model; sys.exit('bokeh' in sys.modules or 'jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_results_stand_in_sections():
    html = page.render(report())
    assert html.count('id="duplicates"') == html.count('id="checks"') == 1
    assert "1,234" in text_of(html)
    assert html.index("by source plain") < html.index("clusters plain") < html.index("checks plain")
    many = ResultTable("Quantiles", "t", ("n",), [(float(n),) for n in range(500)])
    shown = text_of(page.render(ReportData("t", "d", "c", "v", results=[many])))
    assert "The first 200 of 500" in shown
