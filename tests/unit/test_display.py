"""Counts and tables as people see them."""

from dolma_dask.display import counted, html_pairs, html_table, text_table


def test_one_is_no_plural():
    assert [counted(n, "shard") for n in (0, 1, 2000)] == ["0 shards", "1 shard", "2,000 shards"]


def test_numbers_go_to_the_right_and_words_to_the_left():
    rows = [["source", "bytes", "shard"], ["web", "1,234 B", "x"], ["a longer name", "", "2019/a"]]
    assert text_table(rows) == [
        "source           bytes  shard",
        "web            1,234 B  x",
        "a longer name           2019/a",
    ]


def test_html_is_escaped():
    hostile = "<script>&"
    for html in (html_pairs(hostile, [(hostile, hostile)]), html_table(hostile, [[hostile], [hostile]])):
        assert "<script>" not in html
        assert html.count("&lt;script&gt;&amp;") == 3
