"""HTML of displays: it can be parsed, says what it was given, and is plain where styles are stripped."""

from html.parser import HTMLParser

from dolma_dask.results import notebook
from dolma_dask.results.parts import Fact, Facts, Failures, Heading, Listing, Notes
from dolma_dask.results.table import Column, Table

HOSTILE = "<script>alert('x')</script>&\"><img src=x onerror=alert(1)>"
VOID = {"img", "br", "meta"}


class Parsed(HTMLParser):
    """Tags, each closed in its order, and the text between them, without styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += "" if self.open[-1] == "style" else data


def everything(text):
    words = [Column(text, "words"), Column(text, "name")]
    parts = [
        Heading(text),
        Facts(text, [Fact(text, text)]),
        Table(text, words, [(text, text), (text, "5")]),
        Notes([text]),
        Listing(text, [text]),
        Failures([(text, text, text)] * 5),
    ]
    return notebook.shown(parts)


def test_what_is_given_is_shown_and_nothing_else_becomes_a_tag():
    plain, hostile = Parsed(everything("plain")), Parsed(everything(HOSTILE))
    assert hostile.tags == plain.tags
    assert hostile.text == plain.text.replace("plain", HOSTILE)
    assert plain.text.count("plain") == 1 + 3 + 6 + 1 + 2 + 15


def test_numbers_stand_to_the_right_without_any_style():
    columns = [Column("name", "name"), Column("size", "size"), Column("share", "share")]
    page = notebook.shown([Table("t", columns, [("2019/a", 1234, 0.0001), ("b", None, 0.05)])])
    assert page.count("<td align='right'>") == 4
    assert "<td>2019/a</td>" in page
    assert "<th align='right'>size</th>" in page
    assert "<td align='right'>&lt; 0.1 %</td>" in page


def test_much_is_folded_and_nothing_is_left_of_nothing():
    rows = [("a", "DataError", "row 7")]
    assert "<details open><summary>1 shard failed" in notebook.shown([Failures(rows)])
    assert "<details><summary>4 shards failed" in notebook.shown([Failures(rows * 4)])
    nothing = [Failures([]), Notes([]), Listing("", []), Table("t", [Column("a"), Column("b")], [])]
    assert notebook.shown(nothing) == notebook.fragment()


def test_the_style_is_small():
    assert len(notebook.fragment()) < 1600
