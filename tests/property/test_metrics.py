"""Metrics of columns are those of a plain Python oracle, whatever is missing."""

import metric_oracle
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.formats.json.lines import SPAN
from dolma_dask.rules.metrics import METRICS, find_metric

LINES = ("rps_lines_num_words", "rps_lines_ending_with_terminal_punctution_mark")
SIGNALS = tuple(sorted(set(metric_oracle.OF_DOCUMENTS.values())))

scores = st.none() | st.integers(0, 40).map(float)
ends = st.none() | st.sampled_from([0.0, 1.0])
numbers = st.none() | st.sampled_from([0.0, 1.0, 2.0, 7.0]) | st.floats(0, 1e6)
documents = st.fixed_dictionaries(
    {
        **dict.fromkeys(SIGNALS, numbers),
        LINES[0]: st.none() | st.lists(scores, max_size=4),
        LINES[1]: st.none() | st.lists(ends, max_size=4),
        "language": st.sampled_from([None, *metric_oracle.MEAN_WORD]),
    }
)


def spans(values):
    return None if values is None else [[at, at + 1, value] for at, value in enumerate(values)]


def columns_of(rows):
    """Columns under full names, all but those of lines plain numbers."""
    listed = {
        name: pa.array(
            [
                None
                if row[name] is None
                else [dict(zip(("start", "end", "score"), one, strict=True)) for one in spans(row[name])]
                for row in rows
            ],
            pa.list_(SPAN),
        )
        for name in LINES
    }
    plain = {name: pa.array([row[name] for row in rows], pa.float64()) for name in SIGNALS}
    full = {f"e__t__{name}": column for name, column in {**listed, **plain}.items()}
    return {**full, "metadata.language": pa.array([row["language"] for row in rows], pa.large_string())}


@given(st.lists(documents, max_size=6), st.integers(0, 3))
def test_metrics_are_those_of_the_oracle(rows, first):
    columns = {name: column.slice(first) for name, column in columns_of(rows).items()}
    values = {name: find_metric(name, list(columns)) for name in METRICS}
    found = {name: value.number(columns).to_pylist() for name, value in values.items()}
    for at, row in enumerate(rows[first:]):
        signals = {name: spans(row[name]) for name in LINES}
        signals |= {name: [[0, 9, row[name]]] for name in SIGNALS}
        expected = metric_oracle.metrics(signals, row["language"])
        assert {name: found[name][at] for name in METRICS} == expected
