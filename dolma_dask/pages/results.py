"""Results of validate, quantiles, filter and dedupe as tables of the page; all of them stand in journals and small files.

Cost: a file of quantiles per call of that verb; nothing is read of documents or attributes.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dolma_dask.display import byte_size, counted, isolated, percent
from dolma_dask.errors import DolmaDaskError
from dolma_dask.figures.model import Line, SignalHistogram
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Record
from dolma_dask.pages.history import History, Step, shown_name
from dolma_dask.pages.model import ResultTable
from dolma_dask.reading.thresholds import read_table
from dolma_dask.registry import VERBS, load
from dolma_dask.summary import Summary
from dolma_dask.verbs.dedupe.comparison import Comparison, comparison_of
from dolma_dask.verbs.dedupe.sizes import SIZE_EDGES, size_words
from dolma_dask.verbs.dedupe.summary import LEFT_OUT, summarize
from dolma_dask.verbs.filter.summary import summarize as summarize_levels
from dolma_dask.verbs.mix.drawn import PARAMETER, DrawnTable

SHOWN_QUANTILES = ("0.01", "0.1", "0.5", "0.9", "0.99")

BY_SOURCE = ("Source", "Documents", "Duplicates")
"""First columns of the table of duplicates by source."""

MOST_GROUPS = 200
"""Lines of a table of quantiles; the file has all."""


def result_tables(history: History) -> tuple[ResultTable, ...]:
    """Return the tables that the registry names for the verbs of a history (of all shards), in the order of the registry."""
    return tuple(
        table
        for verb in VERBS.values()
        for step in history.steps
        if verb.tables and step.verb == verb.name
        for table in load(verb.tables)(step)
    )


def checks(step: Step) -> Iterator[ResultTable]:
    """Make the table of the newest validation of a dataset."""
    report = next((record.info for record in step.records if record.unit == "report"), None)
    if report is None:
        return
    scope, problems = report["scope"], report["problems"]
    looked = (
        f"{counted(scope['files'], 'file')} of {scope['files_of']:,}"
        if scope["files"] < scope["files_of"]
        else "all files"
    )
    against = f", compared with {isolated(scope['against'])}" if scope["against"] else ""
    rows = [
        (kind.replace("_", " "), problem["count"], _location(problem["first"]), problem["expected"])
        for kind, problem in problems.items()
    ]
    total = counted(sum(problem["count"] for problem in problems.values()), "problem")
    caption = (
        f"Looked at {looked} and every row in them{against}: {total if problems else 'nothing is wrong'}. "
        + " ".join(report["notes"])
    )
    yield ResultTable(
        "Checks",
        shown_name(step.root),
        ("Problem", "Rows or files", "First", "Expected"),
        rows,
        caption.strip(),
        bool(problems),
    )


def _location(first: Sequence[Mapping[str, object]]) -> str:
    if not first:
        return ""
    one = first[0]
    row = "" if one.get("row") is None else f", row {one['row']}"
    return f"{one['file']}{row}: {one['found']}"


def duplicates(step: Step) -> Iterator[ResultTable]:
    """Make the tables of each set of flags: by source, how similar documents were found, and clusters."""
    sets: defaultdict[str, list[Record]] = defaultdict(list)
    similar = {record.unit.split("/")[1]: record for record in step.records if "comparison" in record.info}
    for record in step.records:
        if "sources" in record.info:
            sets[record.unit.split("/")[1]].append(record)
    for name, records in sets.items():
        listing = {record.shard: number for number, record in enumerate(records)}
        summary = summarize(Summary("dedupe", step.root), records, listing)
        title = f"{isolated(name)} in {shown_name(step.root)}"
        documents = sum(row.documents for row in summary.sources)
        marked = sum(row.duplicates for row in summary.sources)
        is_verified = any(one.similarity is not None for one in summary.clusters)
        aside = _took_no_part(records, step.params_of(f"{layout.ATTRIBUTES}/{name}/"))
        yield ResultTable(
            "Duplicates",
            f"{title}, by source",
            (*BY_SOURCE, "Bytes of their text", "Clusters", "Largest cluster"),
            [
                (row.source, row.documents, row.duplicates, row.text_bytes_marked, row.clusters, row.largest)
                for row in summary.sources
            ],
            f"{marked:,} of {counted(documents, 'document')} {'is a copy' if marked == 1 else 'are copies'} of another one, which survives. A cluster counts for the source of its survivor.{aside}",
        )
        if name in similar:
            info = similar[name].info
            yield _found_pairs(title, comparison_of(info["comparison"]))
            yield _cluster_sizes(title, info["sizes"])
        yield ResultTable(
            "Duplicates",
            f"{title}, largest clusters",
            (
                "Survivor",
                "Documents",
                *(["Mean similarity"] if is_verified else []),
                "Source",
                "Shard",
                "Row",
            ),
            [
                (one.id, one.size, *([one.similarity] if is_verified else []), one.source, one.shard, one.row)
                for one in summary.clusters
            ],
            "Similarities are those of each document to the nearest one that it was compared with."
            if is_verified
            else "",
        )


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


def _found_pairs(title: str, comparison: Comparison) -> ResultTable:
    """Make the table of the S-curve."""
    at = np.arange(0.3, 1.0, 0.1)
    x = np.linspace(0, 1, 101)
    line = Line(
        f"{title}, S-curve",
        x,
        comparison.recall(x),
        "Jaccard similarity",
        "pairs found",
        [(">=", comparison.similarity)],
    )
    words = "; ".join(f"{label}: {value}" for label, value in comparison.rows())
    return ResultTable(
        "Duplicates",
        f"{title}, pairs found by similarity",
        ("Jaccard similarity", "Expected share of pairs found"),
        [(round(one, 2), round(share, 4)) for one, share in zip(at.tolist(), comparison.recall(at).tolist(), strict=True)],
        f"{words}. The dashed line is the wanted similarity: what is found to the left of it is wrong, what is missed to the right of it is lost.",
        plot=line,
        is_detail=True,
    )  # fmt: skip


def _cluster_sizes(title: str, counts: Sequence[int]) -> ResultTable:
    """Make the table of how many clusters have how many documents."""
    edges = SIZE_EDGES[: len(counts) + 1].astype(np.float64)
    sizes = SignalHistogram(
        f"{title}, sizes of clusters",
        edges,
        np.array(counts, np.int64),
        scale="log",
        count_scale="log",
    )
    return ResultTable(
        "Duplicates",
        f"{title}, sizes of clusters",
        ("Documents in a cluster", "Clusters"),
        [(size_words(number), count) for number, count in enumerate(counts) if count],
        "Both axes of the plot are logarithmic." if counts else "No two documents are similar.",
        plot=sizes if counts else None,
    )


def downsampled(step: Step) -> Iterator[ResultTable]:
    """Make the table of what a mix has kept of each group, if it was downsampled."""
    if PARAMETER in step.params:
        table = DrawnTable.from_json(step.params[PARAMETER])
        rows = [
            (
                label or "(none)",
                "all" if drawn.wanted is None else drawn.wanted,
                drawn.kept,
                drawn.of,
                drawn.documents,
                drawn.documents_of,
            )
            for label, drawn in list(table.groups.items())[:MOST_GROUPS]
        ]
        unit = table.unit.capitalize()
        yield ResultTable(
            "Downsampling",
            f"{shown_name(step.root)}, {table.unit} by {isolated(table.by or 'nothing')}",
            ("Group", f"{unit} wanted", f"{unit} kept", f"{unit} there", "Documents kept", "Documents there"),
            rows,
            "Of what rules and filters keep, the first by a hash of source and id, until the next document would exceed the number.",
        )


def packed_rows(step: Step) -> Iterator[ResultTable]:
    """Make the table of the rows that hdf5 has packed."""
    parts = [record for record in step.records if "rows" in record.counts]
    rows, tokens, padding = (
        int(sum(record.counts[name] for record in parts)) for name in ("rows", "loss_tokens", "pad_tokens")
    )
    written = [file.bytes for record in parts for file in record.files if not file.path.startswith("_")]
    line = (rows, tokens, padding, percent(tokens, tokens + padding), len(written), byte_size(sum(written)))
    yield ResultTable(
        "Packed rows",
        shown_name(step.root),
        ("Rows", "Tokens to predict", "Other tokens", "Packing efficiency", "Files", "Size"),
        [line] if parts else [],
        f"Rows of {counted(step.params.get('max_seq_length', 2048), 'token')}; the efficiency is the share of tokens to predict in them.",
    )


def quantiles(step: Step) -> Iterator[ResultTable]:
    """Make a table for each file of quantiles."""
    for record in step.records:
        parameters = record.info.get("parameters")
        if parameters is None:
            continue
        try:
            table = read_table(files.join(step.root, record.unit))
        except (DolmaDaskError, OSError) as error:
            yield ResultTable("Quantiles", record.unit, (), (), f"could not be read: {error}")
            continue
        rows = [
            (signal, group, entry["n"], *(_real(entry["q"].get(name)) for name in SHOWN_QUANTILES))
            for signal, groups in table.items()
            for group, entry in groups.items()
        ]
        by = parameters.get("by") or []
        columns = " and ".join(map(isolated, [by] if isinstance(by, str) else by))
        caption = f"Method: {parameters.get('method')}." + (
            f" The first {MOST_GROUPS} of {len(rows):,} lines; {record.unit} has them all."
            if len(rows) > MOST_GROUPS
            else ""
        )
        yield ResultTable(
            "Quantiles",
            f"{shown_name(step.root)}/{record.unit}" + (f", by {columns}" if by else ""),
            ("Signal", "Group", "Values", *(f"p{float(name) * 100:g}" for name in SHOWN_QUANTILES)),
            rows[:MOST_GROUPS],
            caption,
            is_detail=True,
        )


def levels(step: Step) -> Iterator[ResultTable]:
    """Make a table for each set of levels: the documents that each rule keeps at each level, and all rules together."""
    known = {
        record.unit.split("/")[1]: record.info["rules"] for record in step.records if "rules" in record.info
    }
    for name, rules in known.items():
        own = [record for record in step.records if record.unit.startswith(f"{layout.ATTRIBUTES}/{name}/")]
        found = summarize_levels(Summary("filter", step.root), own, rules)
        rows = list(found.lines())
        more = f" The first {MOST_GROUPS} of {len(rows):,} lines." if len(rows) > MOST_GROUPS else ""
        yield ResultTable(
            "Levels",
            f"{isolated(name)} in {shown_name(step.root)}",
            ("Rule", "Group", *found.columns[2:-1], "No value"),
            rows[:MOST_GROUPS],
            f"Documents that pass at least so many levels of thresholds, from the loosest on.{more}",
        )


def _real(value: float | None) -> float | None:
    return None if value is None else float(value)
