"""Replaced spans, moved spans, spliced lines and joined objects equal what plain Python does, on wild Unicode."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.formats.json.lines import SPAN
from dolma_dask.rules.replacements import Replacement, SpanColumn, move_spans, replace_spans
from dolma_dask.rules.splicing import Edit, join_objects, splice

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORDS = st.text(st.sampled_from("aé中😀\n\u0301{}"), max_size=4)
PLACES = st.integers(0, 14)
SPANS = st.lists(
    st.tuples(PLACES, PLACES, st.sampled_from([0.0, 0.5, 1.0])).map(lambda s: (min(s[:2]), max(s[:2]), s[2])),
    max_size=5,
)
RULES = st.lists(
    st.tuples(st.sampled_from([None, 0.5]), st.sampled_from([None, 1.0]), WORDS, st.booleans()),
    min_size=1,
    max_size=3,
)


def documents_of(rules: list[Any]) -> st.SearchStrategy[Any]:
    """Rules, and texts with the spans of each rule and others."""
    spans = st.tuples(*[st.none() | SPANS] * len(rules))
    return st.tuples(st.just(rules), st.lists(st.tuples(TEXTS, spans, SPANS), min_size=1, max_size=4))


def chosen_spans(text: str, rules: list[Any], spans: list[Any]) -> list[tuple[int, int, str]]:
    """Return the spans that are replaced, by the rules in the module's docstring."""
    asked = []
    for (least, limit, word, expands), of_rule in zip(rules, spans, strict=True):
        for start, end, score in of_rule or ():
            if (least is None or score >= least) and (limit is None or score < limit):
                asked.append((start, end, word, expands))
    selected: list[tuple[int, int, str]] = []
    for start, end, word, expands in sorted(asked, key=lambda span: span[0]):
        start, end = min(start, len(text)), min(end, len(text))
        if selected and (start < selected[-1][1] or (start == selected[-1][1] and start == end)):
            continue
        selected.append((start, end, word.replace("{}", text[start:end]) if expands else word))
    return selected


def replaced_text(text: str, selected: list[tuple[int, int, str]]) -> str:
    pieces, at = [], 0
    for start, end, word in selected:
        pieces += [text[at:start], word]
        at = end
    return "".join([*pieces, text[at:]])


def moved(span: list[Any], text: str, selected: list[tuple[int, int, str]]) -> list[Any] | None:
    start, end = min(span[0], len(text)), min(span[1], len(text))
    if (start, end) == (0, len(text)):
        return [0, len(replaced_text(text, selected)), span[2]]
    for begin, behind, _ in selected:
        if begin < start < behind or begin < end < behind:
            return None
        if begin <= start < end <= behind:
            return None
    grown_start = sum(len(word) - (behind - begin) for begin, behind, word in selected if behind <= start)
    grown_end = sum(len(word) - (behind - begin) for begin, behind, word in selected if begin < end)
    return [start + grown_start, max(end + grown_end, start + grown_start), span[2]]


def rule_of(least: float | None, limit: float | None, word: str, expands: bool) -> Replacement:
    return Replacement("$.attributes.s", least, limit, word if expands else "$.id")


def column_of(rule: Any, spans: list[Any]) -> SpanColumn:
    parts = ("start", "end", "score")
    rows = [each and [dict(zip(parts, span, strict=True)) for span in each] for each in spans]
    return SpanColumn(rule_of(*rule), pa.array(rows, pa.list_(SPAN)), pa.array([rule[2]], pa.large_string()))


@settings(max_examples=examples(120))
@given(RULES.flatmap(documents_of), st.integers(0, 2))
@example(([(None, None, "new", True)], [("a@b.c", ([(0, 5, 1.0)],), [(0, 5, 1.0), (1, 2, 1.0)])]), 1)
@example(([(None, None, "", False)], [("0", ([(0, 0, 0.0), (0, 1, 0.0)],), [(0, 0, 0.0)])]), 0)
def test_texts_and_spans(case: Any, skipped: int) -> None:
    rules, documents = case
    texts, spans_of, _ = zip(*documents, strict=True)
    attributes: list[dict[str, Any]] = [
        {
            "s": [list(span) for span in spans],
            "n": 1.5,
            "d": [[0, len(text), 0.25]],
            "o": {"s": [[1, 2, 3]]},
            "e": [],
            "é": "[[1,2,3]]",
        }
        for text, _, spans in documents
    ]
    padded = pa.array(["padding"] * skipped + list(texts), pa.large_string())[skipped:]
    found = replace_spans(padded, list(map(column_of, rules, zip(*spans_of, strict=True))))
    selected = [chosen_spans(text, rules, spans) for text, spans in zip(texts, spans_of, strict=True)]
    assert found.texts.to_pylist() == [
        replaced_text(text, spans) for text, spans in zip(texts, selected, strict=True)
    ]
    assert found.changed.tolist() == [bool(spans) for spans in selected]
    column = pa.array([json.dumps(each, ensure_ascii=False) for each in attributes], pa.large_string())
    for text, before, after, spans in zip(
        texts, attributes, move_spans(column, found).to_pylist(), selected, strict=True
    ):
        expected = dict(before)
        if spans:
            for key in ("s", "d"):
                expected[key] = [
                    each for span in before[key] if (each := moved(span, text, spans)) is not None
                ]
            if (0, len(text)) in [span[:2] for span in spans]:
                expected["s"] = []
            inner = [each for span in before["o"]["s"] if (each := moved(span, text, spans)) is not None]
            expected["o"] = {"s": inner}
        assert json.loads(after) == expected


@given(TEXTS.filter(bool), st.lists(st.tuples(PLACES, PLACES), min_size=1, max_size=4))
def test_spans_with_other_lists_beside_them(text: str, bounds: list[tuple[int, int]]) -> None:
    """Whole numbers written with a point, and lists that are no spans, take another way to the same places."""
    spans = [[min(pair), max(pair), 1] for pair in bounds]
    column = pa.array([[{"start": 0, "end": 1, "score": 1.0}]], pa.list_(SPAN))
    rule = SpanColumn(rule_of(None, None, "", True), column, pa.array(["é中"], pa.large_string()))
    found = replace_spans(pa.array([text], pa.large_string()), [rule])
    line = json.dumps({"f": [[float(a), float(b), x] for a, b, x in spans], "s": spans, "w": ["a", 1]})
    after = json.loads(move_spans(pa.array([line], pa.large_string()), found)[0].as_py())
    expected = [each for span in spans if (each := moved(span, text, [(0, 1, "é中")])) is not None]
    assert after == {"f": expected, "s": expected if len(text) > 1 else [], "w": ["a", 1]}


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
KEYS = st.one_of(st.sampled_from(["id", "text", "metadata", "attributes", 'te"xt', "é"]), TEXTS)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


def line_of(value: Any, style: int) -> str:
    separators = [(",", ":"), (", ", ": "), (" , ", " :\t")][style % 3]
    return json.dumps(value, ensure_ascii=style > 2, separators=separators)


@given(st.lists(st.tuples(OBJECTS, st.integers(0, 5), VALUES, st.booleans()), min_size=1, max_size=5))
def test_spliced_lines(rows: list[tuple[dict[str, Any], int, Any, bool]]) -> None:
    lines = [line_of(row, style) + "\n" for row, style, _, _ in rows]
    values = [json.dumps(value) if wanted else None for _, _, value, wanted in rows]
    edits = [Edit("text", pa.array(values, pa.large_string())), Edit("metadata", None), Edit('te"xt', None)]
    spliced = splice(pa.array([line.encode() for line in lines], pa.large_binary()), edits).to_pylist()
    for (row, _, value, wanted), line, after in zip(rows, lines, spliced, strict=True):
        expected = {key: each for key, each in row.items() if key not in ("metadata", 'te"xt')}
        expected |= {"text": value} if wanted else {}
        assert json.loads(after) == expected
        assert after.count(b"\n") == 1
        assert after.endswith(b"}\n")
        if not wanted and expected == row:
            assert after == line.encode()


@given(st.lists(st.tuples(*[st.one_of(st.none(), OBJECTS)] * 3, st.integers(0, 5)), min_size=1, max_size=4))
def test_joined_objects(rows: list[Any]) -> None:
    columns = [
        pa.array([None if row[k] is None else line_of(row[k], row[3]) for row in rows], pa.large_string())
        for k in range(3)
    ]
    for row, text in zip(rows, join_objects(columns).to_pylist(), strict=True):
        assert json.loads(text) == {**(row[0] or {}), **(row[1] or {}), **(row[2] or {})}
        assert len(json.loads(text, object_pairs_hook=list)) == len(json.loads(text))
