"""Rows of the quality signals of RedPajama-V2 as they are published: keys, their order and their JSON types.

``{"id":...,"id_int":...,"metadata":{...},"quality_signals":{name:[[start,end,score],...]}}``, where a score may be null. Of the same values, upstream writes very small ones
in other digits of the same number. What reads such rows is `dolma_dask.formats.redpajama_signals`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.attribute_columns import column_texts, float_values
from dolma_dask.formats.json.write import span_texts, string_texts
from dolma_dask.formats.redpajama import id_numbers
from dolma_dask.text.columns import join_texts, large_bytes, string_parts, validity
from dolma_dask.text.kernels import Counts

DECIMALS = 8

INTEGERS = frozenset({"rps_doc_ut1_blacklist", "rps_doc_word_count", "rps_lines_num_words"})
"""Signals whose scores are integers; those of all others are floats."""

METADATA = ("cc_segment", "cc_net_source", "url", "source_domain", "language", "snapshot_id")
"""Members of the metadata; ``cc_net_source`` and ``snapshot_id`` come from the id."""


@dataclass(frozen=True)
class Signal:
    """A signal of some documents."""

    name: str
    values: pa.Array  # (n,) float64, of documents; or lists of spans, null for one without a score


def signal_rows(
    ids: pa.LargeStringArray,
    metadata: Mapping[str, pa.LargeStringArray],
    lengths: Counts,
    signals: Sequence[Signal],
) -> pa.LargeBinaryArray:
    """Return a line for each document: `ids` of one shard (n,), fields of `METADATA` by name, code points of the texts, signals in their order.

    The other two fields follow from the ids, ``<snapshot>/<shard>/<file>/<row>``.
    """
    source = pc.replace_substring_regex(ids, r"/[^/]*$", "")
    known = {
        **metadata,
        "cc_net_source": source,
        "snapshot_id": pc.replace_substring_regex(source, r"/.*$", ""),
    }
    members = [_member(name, _quoted(known[name])) for name in METADATA]
    scores = [_member(signal.name, _spans(signal, lengths)) for signal in signals]
    numbers = pa.array(id_numbers(ids)).cast(pa.large_string())
    rows = join_texts(
        '{"id":', _quoted(ids), ',"id_int":', numbers, ',"metadata":{', *_joined(members), '},"quality_signals":{', *_joined(scores), "}}\n"
    )  # fmt: skip
    return large_bytes(*string_parts(rows))


def _member(name: str, texts: pa.LargeStringArray) -> tuple[str, pa.LargeStringArray]:
    return f'"{name}":', texts


def _joined(members: Sequence[tuple[str, pa.LargeStringArray]]) -> list[pa.LargeStringArray | str]:
    """Return the pieces of the members of an object."""
    pieces = [piece for key, texts in members for piece in (f",{key}", texts)]
    return [str(pieces[0])[1:], *pieces[1:]]


def _quoted(strings: pa.Array) -> pa.LargeStringArray:
    return pc.fill_null(string_texts(strings.cast(pa.large_string())), "null")


def _spans(signal: Signal, lengths: Counts) -> pa.LargeStringArray:
    """Return lists of spans; of a document, one that holds all of it."""
    if pa.types.is_list(signal.values.type):
        texts, ends = column_texts(signal.name, "spans", signal.values, DECIMALS), np.zeros_like(lengths)
    else:
        texts, ends = _document_spans(signal, lengths), lengths
    if signal.name in INTEGERS:
        texts = pc.replace_substring(texts, ".0]", "]")
    missing = join_texts("[[0,", pa.array(ends).cast(pa.large_string()), ",null]]")
    return pc.coalesce(texts, missing)


def _document_spans(signal: Signal, lengths: Counts) -> pa.LargeStringArray:
    rows = np.arange(len(lengths) + 1)
    scores = float_values(signal.name, "document", signal.values)
    return span_texts(rows, validity(signal.values), np.zeros_like(lengths), lengths, scores, DECIMALS)
