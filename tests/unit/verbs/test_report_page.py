import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dolma_dask.figures import axes, interactive
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.pages import markup, page, views
from dolma_dask.pages.model import (
    SIDES,
    Example,
    FailureRow,
    QuarantineRow,
    ReportData,
    RuleRow,
    SourceRow,
    StageRow,
)
from dolma_dask.pages.outlines import small_outline
from dolma_dask.results.table import Column, Table

HOSTILE = "</script><script>alert(1)</script>\"'><img src=http://evil.example/x onerror=alert(1)>{{7*7}}<!--]]>&amp;"


def data_of(**content: Any) -> ReportData:
    return ReportData(**{"title": "t", "dataset": "d", "created": "c", "version": "v", **content})


def empty_signal(key: str = "a__b__c") -> SignalHistogram:
    return SignalHistogram(key, np.empty(0), np.empty(0, np.int64), nulls=3)


def example(**content: Any) -> Example:
    plain = Example("just inside", "r", "k", 1.0, "s", "i", "f", 0, "")
    return replace(plain, **content)


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
            Table(f"by source {text}", (Column(f"source {text}", "name"), Column("documents")), [(f"web {text}", 1234)], f"caption {text}", section="Duplicates"),
            Table(f"checks {text}", (Column("kind", "name"), Column("share", "real")), [(f"kind {text}", 0.5), ("other", None)], section="Checks", is_alarm=True),
            Table(f"clusters {text}", (Column("id", "name"),), [], section="Duplicates"),
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


@pytest.mark.slow
def test_hostile_text_changes_no_element():
    tame, wild = read(page.render(report())), read(page.render(report(HOSTILE)))
    assert shape(wild) == shape(tame)
    assert [attrs for attrs, _ in wild.scripts] == [attrs for attrs, _ in tame.scripts]
    shown = "".join(wild.text)
    for part in [
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
    ]:
        assert f"{part} {HOSTILE}" in shown
    for attrs, script in wild.scripts:
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


@pytest.mark.slow
def test_bokeh_is_there_once_and_only_for_plots():
    assert len(page.render(report(signals=0))) < 60_000
    one, three = page.render(report(signals=1)), page.render(report(signals=3))
    assert 1_000_000 < len(one) < 1_500_000
    assert len(three) - len(one) < 60_000


@pytest.mark.slow
def test_figures_are_numbered_alike_each_time():
    one, other = (list(interactive.figure_items(list(report(signals=3).signals))) for _ in range(2))
    assert one == other
    assert len({item["root_id"] for item in one}) == 3


def text_of(html: str) -> str:
    return re.sub(r"[ \n]+", " ", "".join(read(html).text))


def test_numbers_of_the_run():
    shown = text_of(page.render(report()))
    for part in (
        "50.0 % of 1,400",
        "2.50 MB",
        "600,000",
        "15.0 s",
        "1 failed shard, 100 bad records",
        "400 kB/s",
    ):
        assert part in shown
    assert "4.17 bytes of text per token" in shown


def test_of_a_quiet_run_nothing_was_wrong():
    def text(**content: Any) -> str:
        return text_of(page.render(data_of(**content)))

    nothing = "Nothing: no shard failed, and every record could be read."
    assert nothing in text(stages=[StageRow("tag", 10, 10)])
    assert nothing not in text(quarantine=[QuarantineRow("tag", "x", 2)])
    assert nothing not in text(failures=[FailureRow("tag", "s", "x")])
    assert nothing not in text(results=[Table("v0", (), (), section="Checks", is_alarm=True)])


def test_what_a_reader_must_know_stands_with_the_rules_also_without_any():
    html = page.render(data_of(remarks=["mix <b>wrote</b> 5"]))
    assert '<section id="rules"' in html
    assert '<a href="#rules">' in html
    assert '<p class="remark">mix &lt;b&gt;wrote' in html
    assert 'id="rules"' not in page.render(data_of())


def test_very_long_names_are_folded_and_none_has_a_word():
    name = "x" * 10_000
    rows = [SourceRow(name, 2, 9), SourceRow("", 1, 9)]
    html = page.render(data_of(sources=rows, examples=[example(id=name, source=name, rule=name)]))
    assert html.count(name) == 1, "in the table alone"
    assert f'<details class="long"><summary>{"x" * 200} ...</summary>{name}</details>' in html
    assert ">(none)</th>" in html


def test_names_of_white_space_are_seen_and_texts_stay():
    html = page.render(
        data_of(
            sources=[SourceRow("  ", 2, 9), SourceRow("a", 1, 9)],
            examples=[example(source=" ", excerpt="   ")],
        )
    )
    assert '<th scope="row" class="key">&#39;  &#39;</th>' in html
    assert "<bdi>&#39; &#39;</bdi>" in html
    assert ">   </pre>" in html


EDGES = {
    "nothing": {},
    "zero documents": {
        "stages": [StageRow("tag", 0, 0, 0, 0, 0, 0.0, 0)],
        "sources": [SourceRow("s", 0, 0, 0, 0, 0)],
    },
    "no values": {
        "stages": [StageRow("ragged")],
        "signals": [empty_signal()],
        "rules": [RuleRow("r", 0, math.nan)],
    },
    "unknown numbers": {"stages": [StageRow("a"), StageRow("b", 5, 9, 1, 1, 1, 1.0, 1)], "where": "x > 1"},
    "very long": {"title": "t" * 5000, "examples": [example(id="i" * 10_000)]},
}


@pytest.mark.parametrize("edge", EDGES)
def test_edge_cases(edge):
    data = data_of(**EDGES[edge])
    html = page.render(data)
    assert len(html) < 100_000  # no plot, no library
    assert "nan" not in text_of(html).lower().replace("nancy", "")
    content = json.loads(page.write_json(data), parse_constant=lambda name: pytest.fail(name))
    assert content["title"] == data.title


def test_many_signals_have_an_index_and_a_search():
    html = page.render(data_of(signals=[empty_signal(f"a__b__{i}") for i in range(60)]))
    assert html.count('<article id="signal-') == 60
    assert all(f'href="#signal-{i}"' in html for i in range(1, 61))
    assert '<input id="find" type="search"' in html
    assert '<input id="find"' not in page.render(report(signals=3))


def test_characters_that_html_cannot_hold():
    data = data_of(title="a\x00b\ud800c\x1b[0m")
    html = page.render(data)
    html.encode()
    assert "a\N{SYMBOL FOR NULL}b\N{REPLACEMENT CHARACTER}c\N{SYMBOL FOR ESCAPE}[0m" in html
    assert json.loads(page.write_json(data))["title"] == "a\x00b\N{REPLACEMENT CHARACTER}c\x1b[0m"


@given(st.text(), st.text(), st.text(min_size=1))
def test_any_text_is_shown_as_it_is(title, key, excerpt):
    cards = [example(rule=title, id=key, excerpt=excerpt)]
    reader = read(page.render(data_of(title=title, signals=[empty_signal(key)], examples=cards)))
    plain = data_of(signals=[empty_signal()], examples=[example(excerpt="plain")])
    assert shape(reader) == shape(read(page.render(plain)))
    assert markup.visible(excerpt) in "".join(reader.text)


def test_json_has_the_same_content():
    data = report(HOSTILE)
    content = json.loads(page.write_json(data))
    assert (content["format"], content["format_version"]) == ("dolma_dask.report", 1)
    assert [stage["verb"] for stage in content["stages"]] == [stage.verb for stage in data.stages]
    signal = content["signals"][0]
    assert signal["counts"] == data.signals[0].counts.tolist()
    assert signal["edges"] == data.signals[0].edges.tolist()
    assert signal["quantiles"]["0.5"] == data.signals[0].quantiles[0.5]
    assert signal["threshold"] == [[f">= {HOSTILE}", 50.0]]
    assert content["examples"][1]["excerpt"] == f"Out {HOSTILE}"


def test_json_of_infinite_numbers():
    data = data_of(examples=[example(value=value) for value in (math.inf, -math.inf, math.nan)])
    values = [card["value"] for card in json.loads(page.write_json(data))["examples"]]
    assert values == ["Infinity", "-Infinity", None]


# ------------------------------------------------------------------------------------------------ plots

values = st.lists(
    st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 5000).map(float)), min_size=1
)


@given(values)
def test_positions_and_ticks_stay_in_the_plot(numbers):
    signal = signal_histogram("k", Histogram.of(numbers))
    places = axes.positions(signal.edges, signal)
    assert (np.diff(places) > 0).all()
    inside = axes.positions(np.array(numbers), signal)
    assert ((inside >= places[0]) & (inside <= places[-1])).all()
    if signal.scale == "log":
        assert places.tolist() == list(range(len(signal.edges)))
        ticks = axes.log_ticks(signal)
        assert ticks == sorted(set(ticks))
        assert len(ticks) <= 3 * axes.MAX_TICKS
        assert all(axes.inside(tick, signal) for tick in ticks)


def test_log_ticks_are_round():
    signal = signal_histogram("k", Histogram.of(np.round(np.random.default_rng(0).lognormal(6, 1.5, 20_000))))
    ticks = axes.log_ticks(signal)
    assert {0.0, 100.0, 1000.0} <= set(ticks)
    assert all(tick == 0 or f"{tick:e}"[0] in "125" for tick in ticks)


def test_a_figure_holds_counts_and_bounds_and_no_text_of_the_data():
    signal = report("NAME").signals[0]
    (item,) = interactive.figure_items([signal])
    text = json.dumps(item)
    assert "NAME" not in text
    assert json.dumps(signal.counts.tolist()) in text
    assert signal.kept_counts is not None
    assert json.dumps(signal.kept_counts.tolist()) in text
    assert '"name": "bound"' in text


def test_a_bound_beyond_the_values_is_said_not_drawn():
    signal = signal_histogram("k", Histogram.of([1.0, 2.0, 3.0]), threshold=[("<=", 99.0)])
    assert '"name": "bound"' not in json.dumps(list(interactive.figure_items([signal])))
    shown = text_of(page.render(data_of(signals=[signal])))
    assert "<=\N{NO-BREAK SPACE}99 (beyond the values seen)." in shown


def test_examples_are_grouped_by_rule():
    cards = [example(kind=kind, rule=rule, id=f"{kind} {rule}") for rule in "ba" for kind in SIDES]
    shown = text_of(page.render(data_of(examples=cards)))
    places = [shown.index(f"{side} {rule}") for rule in "ba" for side in SIDES]
    assert places == sorted(places)
    assert shown.count("Just inside: kept 1") == 2


def test_the_funnel_has_a_line_wherever_the_number_of_documents_changes():
    stages = [
        StageRow("convert", 10, 9, text_bytes=50),
        StageRow("tag", 9, 9, text_bytes=50),
        StageRow("quantiles", 9, 9),
        StageRow("mix", 9, 3, text_bytes=20),
        StageRow("ragged", 3, 3, text_bytes=20, tokens=7),
    ]
    assert [
        (step.label, step.documents.value, step.documents.share, step.text and step.text.value) for step in views.funnel(stages)
    ] == [
        ("after convert", 9, 1.0, 50),
        ("after mix", 3, 3 / 9, 20),
    ], "records of raw files are no documents"  # fmt: skip
    assert [step.text.share for step in views.funnel(stages) if step.text] == [1.0, 0.4]
    assert [step.label for step in views.funnel(stages[1:])] == ["came in", "after mix"]
    assert views.funnel(stages[1:3]) == views.funnel([]) == [], "nothing changes"
    assert [step.label for step in views.funnel([StageRow("a", None, 200), StageRow("b", 200, 50)])] == [
        "after a",
        "after b",
    ]


def test_flags_have_no_plot():
    flag = signal_histogram("exact__exact__flag", Histogram.of(np.ones(5)))
    assert small_outline(flag).count('d=""') == 2
    (view,) = views.signal_views([flag], iter([]))
    assert view.figure is None


def test_the_kept_share_of_a_signal_is_said_where_it_is_not_that_of_all_documents():
    few = signal_histogram("s__t__few", Histogram.of([1.0, 2.0]), Histogram.of([1.0]))
    every = signal_histogram("s__t__every", Histogram.of([1.0, 2.0, 3.0, 4.0]), Histogram.of([1.0, 2.0, 3.0]))
    source = SourceRow("a", 4, kept_documents=3)
    shown = text_of(page.render(data_of(sources=[source], signals=[few, every])))
    assert "2 values, 50.0 % of them in kept documents" in shown
    assert "4 values." in shown
    assert "75.0 % of them" not in shown
    assert "wherever it differs" in shown
    (view,) = views.signal_views([every], iter([None]), views.kept_of_all(data_of(sources=[source])))
    assert "Kept" not in [column.heading for column in views.signal_table([view]).known.columns]


def test_results_stand_in_sections():
    html = page.render(report())
    assert html.count('id="duplicates"') == html.count('id="problems"') == 1
    assert "1,234" in text_of(html)
    assert html.index("checks plain") < html.index("by source plain") < html.index("clusters plain")
    many = Table("t", (Column("n", "real"),), [(float(n),) for n in range(500)], section="Quantiles")
    shown = text_of(page.render(data_of(results=[many])))
    assert "The first 200 of 500" in shown
