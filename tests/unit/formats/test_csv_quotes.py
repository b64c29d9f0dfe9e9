"""Torn rows of tables of text beside a plain scan, whole and in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.formats.csv_quotes import QuoteScan


def oracle(text: str) -> tuple[list[int], bool]:
    """Return the torn rows, and whether the text ends within quotes."""
    torn, row, cells, state, lines = [], 0, 0, "start", 0
    for char in text:
        if state == "quoted":
            state = "closed" if char == '"' else state
            lines += char == "\n"
        elif char == ",":
            state, cells = "start", cells + 1
        elif char in "\r\n":
            row += bool(cells or state != "start")
            state, cells = "start", 0
        elif char == '"' and state in ("start", "closed"):
            lines = 0 if state == "start" else lines
            state = "quoted"
        else:
            if state == "closed" and lines:
                torn.append(row)
            state = "plain"
    return list(dict.fromkeys(torn)), state == "quoted"


@given(st.lists(st.text(',"\n\ra', max_size=40), max_size=5))
def test_torn_rows(pieces):
    scan = QuoteScan(",")
    torn = [row for piece in pieces for row, _ in scan.torn(piece.encode())]
    assert (list(dict.fromkeys(torn)), scan.is_open) == oracle("".join(pieces))


def test_more_torn_rows_than_are_looked_for_at_a_time():
    assert [row for row, _ in QuoteScan("\t").torn(b'"a\n"b\t\n' * 1_000)] == list(range(1_000))
    assert list(QuoteScan("\t").torn(b'"a\n\nb"c\n')) == [(0, 3)]
