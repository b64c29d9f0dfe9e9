"""Tables of typed cells, as text for a terminal and as JSON."""

import pytest

from dolma_dask.results.answer import table_lines, terminal_text
from dolma_dask.results.parts import Fact, Facts, Failures, Heading, Listing, Notes, Sentences
from dolma_dask.results.table import Column, Table, written


@pytest.mark.parametrize(
    "value, kind, text",
    [
        (None, "real", ""),
        (1234567, "integer", "1,234,567"),
        (3.0, "integer", "3"),
        (12345.6, "real", "12,346"),
        (1_500_000, "size", "1.50 MB"),
        (400_000.4, "speed", "400 kB/s"),
        (200, "seconds", "3 min 20 s"),
        (0.795, "share", "79.5 %"),
        (0, "moment", ""),
        (86_400, "moment", "1970-01-02 00:00:00Z"),
        (("?", "words"), "mixed", "?"),
        ((5_000, "size"), "mixed", "5.00 kB"),
        (-5, "change", "\N{MINUS SIGN}5"),
        (5_000, "size_change", "+5.00 kB"),
        (0, "percent_change", "0 %"),
        (" ", "name", "' '"),
    ],
)
def test_cells_are_written_by_their_kind(value, kind, text):
    assert written(value, kind) == text


def table(**more):
    columns = [Column("source", "name"), Column("bytes", "size"), Column("shard", "words"), Column("row")]
    rows = [("web", 1234, "x", None), ("a longer name", None, "2019/a", None)]
    return Table("by source", columns, rows, **more)


def test_numbers_go_to_the_right_and_columns_that_say_nothing_are_left_out():
    assert table_lines(table()) == [
        "source           bytes  shard",
        "web            1.23 kB  x",
        "a longer name           2019/a",
    ]


def test_a_quiet_column_is_left_out_where_all_is_0():
    rows = [("a", 0), ("b", 0)]
    assert Table("", [Column("n", "name"), Column("failed")], rows).known.headings == ["n", "failed"]
    assert Table("", [Column("n", "name"), Column("failed", is_quiet=True)], rows).known.headings == ["n"]


def test_the_first_rows_are_shown_and_the_rest_is_counted():
    assert table_lines(table(max_rows=1))[1:] == [
        "web         1.23 kB  x",
        "and 1 more",
    ]
    assert len(table(max_rows=1).to_json()["rows"]) == 2


def test_a_report_gets_what_is_known():
    found = table(section="Duplicates", caption="Some.").to_json()
    assert found["columns"] == ["source", "bytes", "shard"]
    assert found["rows"][1] == ["a longer name", None, "2019/a"]
    assert (found["section"], found["title"], found["caption"]) == ("Duplicates", "by source", "Some.")


def test_what_would_control_a_terminal_is_spelled():
    lines = table_lines(Table("", [Column("name", "name")], [("a\x1b[31m\nb\u202e\u2028\ud800é",), (" ",)]))
    assert lines[1:] == [r"a\x1b[31m\nb\u202e\u2028\ud800é", "' '"]


def test_very_long_names_are_cut_and_words_are_not():
    columns = [Column("id", "name"), Column("path", "words")]
    (_, line) = table_lines(Table("", columns, [("i" * 100, "p" * 100)]))
    assert line.endswith("p" * 100)
    assert line.startswith("i" * 50)
    assert "i" * 57 not in line


def test_parts_stand_in_their_order():
    parts = [
        Heading("run x"),
        table(),
        Sentences([]),
        Facts("mix", [Fact("documents", 5000, "integer"), Fact("text", 5000, "size")]),
        Notes(["look"]),
        Failures([("a", "DataError", "row 7"), ("b (line 3)", "", "gone")]),
        Listing("a script", ["#!/bin/sh"]),
        Table("nothing", [Column("n")], []),
    ]
    assert terminal_text(parts).splitlines() == [
        "run x",
        "",
        "  by source",
        "  source           bytes  shard",
        "  web            1.23 kB  x",
        "  a longer name           2019/a",
        "mix",
        "  documents  5,000",
        "  text       5.00 kB",
        "  note: look",
        "  FAILED a: DataError: row 7",
        "  FAILED b (line 3): gone",
        "",
        "  a script:",
        "    #!/bin/sh",
    ]


def test_a_terminal_shows_the_first_failures_and_how_many_there_are():
    rows = [(f"{n}.jsonl.gz", "DataError", "row 7") for n in range(1234)]
    lines = terminal_text([Failures(rows)]).splitlines()
    assert lines[0] == "  FAILED 0.jsonl.gz: DataError: row 7"
    assert lines[-1] == "  and 1,214 more; --json lists all"
    assert len(lines) == 21
    assert terminal_text([Failures(rows[:20])]).count("FAILED") == 20
    assert "more" not in terminal_text([Failures(rows[:20])])
