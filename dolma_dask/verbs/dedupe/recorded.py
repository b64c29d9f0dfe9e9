"""The tables of `dedupe` in a report: those of its summary for each set of flags, and how similar documents were found."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dolma_dask.display import counted, isolated, shown_name
from dolma_dask.figures.model import Line, SignalHistogram
from dolma_dask.formats import layout
from dolma_dask.journal import Record
from dolma_dask.results.summary import Recorded, Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.dedupe.comparison import Comparison, comparison_of
from dolma_dask.verbs.dedupe.sizes import SIZE_EDGES, size_words
from dolma_dask.verbs.dedupe.summary import LEFT_OUT, summarize

SECTION = "Duplicates"


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the tables of each set of flags: by source, how similar documents were found, and clusters."""
    sets: defaultdict[str, list[Record]] = defaultdict(list)
    similar = {record.unit.split("/")[1]: record for record in step.records if "comparison" in record.info}
    for record in step.records:
        if "sources" in record.info:
            sets[record.unit.split("/")[1]].append(record)
    for name, records in sets.items():
        listing = {record.shard: number for number, record in enumerate(records)}
        summary = summarize(Summary("dedupe", step.root), records, listing)
        by_source, largest = summary.tables()
        aside = _took_no_part(records, step.params_of(f"{layout.ATTRIBUTES}/{name}/"))
        tables = [replace(by_source, caption=by_source.caption + aside)]
        if name in similar:
            info = similar[name].info
            tables += [_found_pairs(comparison_of(info["comparison"])), _cluster_sizes(info["sizes"])]
        for table in (*tables, largest):
            title = f"{isolated(name)} in {shown_name(step.root)}, {table.title}"
            yield replace(table, section=SECTION, title=title)


def _took_no_part(records: Sequence[Record], params: Mapping[str, Any]) -> str:
    """Say how many documents `dedupe` did not look at, and why not."""
    excluded, apart = (sum(int(record.counts.get(key, 0)) for record in records) for key in LEFT_OUT)
    if not excluded + apart:
        return ""
    where, within = params.get("where"), params.get("within")
    limits = [f"for which {isolated(where)} holds"] if excluded and isinstance(where, str) else []
    limits += [f"with a value of {isolated(within)}"] if apart and isinstance(within, str) else []
    reason = f": only those {' and '.join(limits)} were compared" if limits else ""
    return f" {counted(excluded + apart, 'document')} took no part{reason}."


def _found_pairs(comparison: Comparison) -> Table:
    """Return the table of the S-curve."""
    at, x = np.arange(0.3, 1.0, 0.1), np.linspace(0, 1, 101)
    bound = [(">=", comparison.similarity)]
    line = Line("S-curve", x, comparison.recall(x), "Jaccard similarity", "pairs found", bound)
    words = "; ".join(f"{fact.label}: {fact.text}" for fact in comparison.facts())
    return Table(
        "pairs found by similarity",
        (Column("Jaccard similarity", "real"), Column("expected share of pairs found", "real")),
        [(round(one, 2), round(found, 4)) for one, found in zip(at.tolist(), comparison.recall(at).tolist(), strict=True)],
        f"{words}. The dashed line is the wanted similarity: what is found to the left of it is wrong, what is missed to the right of it is lost.",
        plot=line,
        is_detail=True,
    )  # fmt: skip


def _cluster_sizes(counts: Sequence[int]) -> Table:
    """Return the table of how many clusters have how many documents."""
    edges = SIZE_EDGES[: len(counts) + 1].astype(np.float64)
    numbers = np.array(counts, np.int64)
    sizes = SignalHistogram("sizes of clusters", edges, numbers, scale="log", count_scale="log")
    return Table(
        "sizes of clusters",
        (Column("documents in a cluster", "name"), Column("clusters")),
        [(size_words(number), count) for number, count in enumerate(counts) if count],
        "Both axes of the plot are logarithmic." if counts else "No two documents are similar.",
        plot=sizes if counts else None,
    )
