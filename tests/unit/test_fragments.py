"""HTML of displays: it can be parsed, says what it was given, and is plain where styles are stripped."""

from html.parser import HTMLParser

from dolma_dask import fragments

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
    parts = [
        fragments.heading(text),
        fragments.pairs(text, [(text, text)]),
        fragments.table(text, [(text, text), (text, "5")]),
        fragments.notes([text]),
        fragments.folded(text, fragments.lines(text)),
        fragments.failures([(text, text, text)] * 5),
    ]
    return fragments.fragment(*parts)


def test_what_is_given_is_shown_and_nothing_else_becomes_a_tag():
    plain, hostile = Parsed(everything("plain")), Parsed(everything(HOSTILE))
    assert hostile.tags == plain.tags
    assert hostile.text == plain.text.replace("plain", HOSTILE)
    assert plain.text.count("plain") == 1 + 3 + 4 + 1 + 2 + 15


def test_numbers_stand_to_the_right_without_any_style():
    page = fragments.table(
        "t", [("name", "size", "share"), ("2019/a", "1,234 B", "< 0.1 %"), ("b", "", "5 %")]
    )
    assert page.count("<td align='right'>") == 4
    assert "<td>2019/a</td>" in page
    assert "<th align='right'>size</th>" in page


def test_much_is_folded_and_nothing_is_left_of_nothing():
    rows = [("a", "DataError", "row 7")]
    assert "<details open><summary>1 shard failed" in fragments.failures(rows)
    assert "<details><summary>4 shards failed" in fragments.failures(rows * 4)
    nothing = fragments.failures([]), fragments.notes([]), fragments.table("t", [("a", "b")])
    assert nothing == ("", "", "")


def test_the_style_is_small():
    assert len(fragments.fragment()) < 1600
