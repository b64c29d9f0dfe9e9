"""Members of attribute rows are the published signals byte for byte, without missing values; the exact parser reads what the kernel declines."""

import json
import random

import pyarrow as pa
import pytest

from dolma_dask.formats import redpajama_signals
from dolma_dask.formats.redpajama_signals import signal_members

NAMES = ("rps_doc_word_count", "rps_doc_ut1_blacklist", "rps_lines_num_words", "other", "é\u2028")
SCORES = (0, 3, 0.0, 1.0, -7346.05111942, 0.15995397, 1e-08, 12345678901234567890)


def make_row(draw, names=NAMES):
    """Return signals as they are published: one span or one for each line, some without a score."""
    row = {}
    for name in names:
        lines = draw.randrange(4) if name.startswith("rps_lines_") else 1
        row[name] = [[start * 7, start * 7 + 7, draw.choice(SCORES)] for start in range(lines)]
        if draw.random() < 0.3:
            row[name] = [[0, 7, None]]
    return row


def expected(row):
    """Return what is left without missing values, in plain Python."""
    kept = {
        name: [span for span in spans if span[2] is not None]
        for name, spans in row.items()
        if spans is not None
    }
    return {name: spans for name, spans in kept.items() if spans or not row[name]}


def members_of(texts):
    members, kinds, errors = signal_members(pa.array(texts, pa.large_string()))
    return members.to_pylist(), kinds, errors


def test_members_equal_the_oracle():
    draw = random.Random(3)
    rows = [make_row(draw) for _ in range(500)]
    texts = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in rows]
    members, kinds, errors = members_of(texts)
    assert not errors
    for row, text, found in zip(rows, texts, members, strict=True):
        assert repr(json.loads(f"{{{found}}}")) == repr(expected(row))
        assert found in text or len(expected(row)) < len(row)
    assert kinds == {name: "spans" if name.startswith("rps_lines") else "document" for name in NAMES}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_rows_that_differ_from_the_first(separators):
    """Other names, another order, white space, escapes and several spans of which some have no score."""
    draw = random.Random(5)
    rows = [make_row(draw, draw.sample(NAMES, draw.randrange(1, len(NAMES) + 1))) for _ in range(200)]
    for row in rows:
        row["some"] = [[0, 3, 1e300], [3, 4, None], [4, 6, 2]]
    members, kinds, errors = members_of([json.dumps(row, separators=separators) for row in rows])
    assert not errors
    assert [repr(json.loads(f"{{{found}}}")) for found in members] == [repr(expected(row)) for row in rows]
    assert kinds["some"] == "spans"
    assert kinds.keys() == {*NAMES, "some"}


def test_published_rows_are_left_to_the_kernel(monkeypatch):
    draw = random.Random(7)
    texts = [json.dumps(make_row(draw), separators=(",", ":"), ensure_ascii=False) for _ in range(50)]
    before = members_of(texts)
    monkeypatch.setattr(redpajama_signals, "_members_of", None)
    assert members_of(texts) == before


@pytest.mark.slow
def test_a_signal_of_several_lines_is_a_list_of_spans():
    one, several = '{"x":[[0,9,1.0]]}', '{"x":[[0,4,1.0],[4,9,0.0]]}'
    assert members_of([one, one])[1] == {"x": "document"}
    assert members_of([one, several])[1] == {"x": "spans"}
    assert members_of(['{"x":[[2,9,1.0]]}'])[1] == {"x": "spans"}


@pytest.mark.parametrize(
    "text", [None, "{}", '{"x":null}', '{"x":[[0,0,null]]}', '{"x":[[0,1,null],[1,2,null]]}']
)
def test_nothing_but_missing_values(text):
    members, _, errors = members_of([text, text])
    assert (members, errors) == (["", ""], [])


def test_no_lines_are_an_empty_list():
    assert members_of(['{"x":[],"y":[[0,0,1]]}'] * 2)[0] == ['"x":[],"y":[[0,0,1]]'] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", "a JSON object, found a number"),
        ('{"x":3}', "a list of spans in signal 'x', found a number"),
        ('{"x":[3]}', "spans \\[start, end, score\\] in signal 'x', found a number"),
        ('{"x":[[0,3]]}', "found 2 elements"),
        ('{"x":[[0,3,1,1]]}', "found 4 elements"),
        ('{"x":[[0,3,"a"]]}', "a number in signal 'x', found a string"),
        ('{"x":[[0,1.5,1]]}', "a whole number as end of a span"),
        ('{"x":[[0,3,1e999]]}', "a number that fits a double"),
        (f'{{"x":[[0,3,{"9" * 400}]]}}', "a number that fits a double"),
        (f'{{"x":[[0,{"9" * 40},1]]}}', "a whole number as end of a span"),
    ],
)
def test_other_values_are_errors(text, message):
    members, _, errors = members_of(['{"x":[[0,3,1]]}', text, '{"x":[[0,3,2]]}'])
    assert members[0] == '"x":[[0,3,1]]'
    assert members[2] == '"x":[[0,3,2]]'
    ((row, error),) = errors
    assert row == 1
    with pytest.raises(type(error), match=message):
        raise error
