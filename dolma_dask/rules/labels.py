"""Groups by several columns: the labels of all as one, such as ``en/head``; 30 ns per row and column."""

import re

import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.exact_numbers import nearest
from dolma_dask.rules.groups import MAX_GROUPS, LabelKind, label_of, too_many
from dolma_dask.rules.values import Columns, Operand, Value
from dolma_dask.text import compute as pc

BETWEEN = "/"
"""Between the labels of two columns; one in a label stands behind a backslash, and so does a backslash."""

_PART = re.compile(r"(?:\\.|[^/\\])*", re.DOTALL)


class Labels(Value, Struct, frozen=True):
    """Labels of several columns, joined; missing where one is."""

    columns: tuple[Value, ...]
    kinds: tuple[LabelKind, ...]  # types of the columns

    def evaluate(self, columns: Columns) -> Operand:
        parts = [_escaped(column.evaluate(columns)) for column in self.columns]
        joined = pc.binary_join_element_wise(*parts, pa.scalar(BETWEEN, pa.large_string()))
        return Operand(joined, "string", f"`{self}`")

    def __str__(self) -> str:
        return BETWEEN.join(map(str, self.columns))


def split_label(label: str) -> list[str]:
    """Return the labels of all columns."""
    parts, at = [], 0
    while at <= len(label):
        part = _PART.match(label, at)
        assert part is not None
        parts.append(re.sub(r"\\(.)", r"\1", part[0], flags=re.DOTALL))
        at = part.end() + 1
    return parts


def _escaped(operand: Operand) -> pa.Array:
    """Return the labels of a column as they stand in joined ones."""
    if operand.kind == "missing":
        return pa.nulls(len(operand.data), pa.large_string())
    encoded = nearest(operand.data).dictionary_encode()
    if len(encoded.dictionary) > 2 * MAX_GROUPS:
        raise too_many(operand.called)
    labels = [label_of(value) for value in encoded.dictionary.to_pylist()]
    texts = [None if label is None else re.sub(r"([/\\])", r"\\\1", label) for label in labels]
    return pa.array(texts, pa.large_string()).take(encoded.indices)
