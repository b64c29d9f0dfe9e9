"""The page of what-if: one HTML file with sliders that needs no network; in a notebook the same inside of a frame.

Numbers travel as JSON in the page, the sample as one byte per document and rule: the number of cuts below its value, which is all that a slider asks. Names
and texts are put into the page by its script as text alone, and a content security policy lets only that script run and loads nothing from anywhere.
Equal answers give equal bytes. Cost: 0.3 s and 0.2 to 1 MB.
"""

import base64
import hashlib
import html
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.figures.histogram import Histogram, display_edges
from dolma_dask.questions.what_if import kernels
from dolma_dask.questions.what_if.answer import WhatIf, sentences, unread_note
from dolma_dask.questions.what_if.kernels import bins_of, lower_ends
from dolma_dask.questions.what_if.levels import GIVEN, NO_GROUP
from dolma_dask.questions.what_if.rows import Counted, ExampleRow
from dolma_dask.results.answer import SURROGATE, script_json
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.thresholds import shown_by
from dolma_dask.text.kernels import Counts, Floats

MARK = b'content="dolma_dask what-if"'
"""Stands near the beginning of every page."""

FRAME_PX = 900
"""Height in a notebook."""


def render(answer: WhatIf) -> str:
    """Return the page; write it as UTF-8."""
    script = page_script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        "title": html.escape(f"What if? {_last(answer.root)}"),
        "style": _part("style.css"),
        "sentences": "".join(f"<p>{html.escape(text)}</p>" for text in sentences(answer)),
        "data": script_json(page_data(answer)),
        "script": script,
    }
    return re.sub(r"<!--(\w+)-->", lambda match: parts[match[1]], _part("page.html"))


def embedded(answer: WhatIf) -> str:
    """Return the page for a notebook: a frame of its own, which sees nothing of the notebook."""
    page = html.escape(render(answer), quote=True)
    return f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="What if?" style="width:100%;height:min({FRAME_PX}px,90vh);border:1px solid #8886;border-radius:8px"></iframe>'


def page_script() -> str:
    """Return the script of every page; a policy of the page around a frame has to let it run too."""
    return _part("page.js")


def _part(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text("utf-8")


def _last(root: str) -> str:
    return "/".join(root.rstrip("/").split("/")[-2:])


# ------------------------------------------------------------------------------------------------ positions of sliders

FINE_CUTS = 100
"""Cuts at equal shares of the documents, beside the edges of the bars."""

MISSING = 255
"""Rank of a document without a value; there are fewer cuts."""


class Cuts(Struct, frozen=True, eq=False):
    """Positions of a rule's slider in one group, or in all: values between which all documents are counted exactly, and the bars of its histogram.

    Left of a cut are the documents with smaller values. Cuts are edges of the bins that were counted, and in one group its bounds as given and at every level,
    whose documents the kernel has counted by themselves. An upper bound, which is inclusive, cuts just above.
    """

    values: Floats  # (n,) ascending, each once
    places: Floats  # (n,) where they stand among the bars, from 0 to their number
    left: Counts  # (n, 2) documents and units with smaller values
    whole: Counts  # (2,) documents and units that have a value
    edges: Floats  # (bars + 1,) of the bars
    bars: Counts  # (bars,) documents
    # cuts of each step, as given and at each level; -1: none
    lower: list[int]
    upper: list[int]


def cuts_of(counts: Counted, bins: Counts, rule: int, group: int | None) -> Cuts:
    """Return the cuts of a rule in a group that has a place, or in all of these; `bins` are (rules, places, BINS, 2)."""
    bounds, sums = counts.bounds, counts.sums
    own = bins[rule].sum(axis=0) if group is None else bins[rule, bounds.places[group]]
    used, whole, steps = np.flatnonzero(own[:, 0]), own.sum(axis=0), len(bounds.levels) + 1
    if not len(used):
        none, no_counts, off = np.zeros(0), np.zeros((0, 2), np.int64), [-1] * steps
        return Cuts(none, none, no_counts, whole, none, no_counts[:, 0], off, off)
    edges = _edges(used, own[used, 0], not sums.fractions[rule, 0])
    at_edges, fine = bins_of(edges), _fine(used, own[used, 0])
    below = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(own, axis=0)])
    lower = upper = np.full(steps, np.nan)
    fails = np.zeros((steps, 2, 2), np.int64)
    if group is not None:
        lower, upper = bounds.lower[rule, group], np.nextafter(bounds.upper[rule, group], np.inf)
        fails = np.stack([sums.fails(rule, step)[group] for step in range(steps)])
    marks = np.concatenate([edges, lower_ends(fine), lower, upper]) + 0.0
    counted = np.concatenate([below[at_edges], below[fine], fails[:, 0], whole - fails[:, 1]])
    left = {mark: each for mark, each in zip(marks.tolist(), counted, strict=True) if math.isfinite(mark)}
    values = np.array(sorted(left))
    return Cuts(
        values,
        _positions(values, edges),
        np.array([left[value] for value in values.tolist()], np.int64),
        whole,
        edges,
        np.diff(below[at_edges][:, 0]),
        *(np.where(np.isfinite(ends), np.searchsorted(values, ends), -1).tolist() for ends in (lower, upper)),
    )


def _edges(used: Counts, documents: Counts, are_whole: bool) -> Floats:
    """Return the edges of the bars, all of them edges of bins; the last is above all values."""
    ends = lower_ends(used)
    keys = np.where(ends < 0, -(np.abs(ends).view(np.int64)), ends.view(np.int64)) >> kernels.SHIFT
    top = float(lower_ends(np.minimum(used[-1:] + 1, kernels.BINS - 1))[0])
    histogram = Histogram(
        keys.astype(np.int32), documents, kernels.SHIFT, 0, 0, float(ends[0]), float(ends[-1]), are_whole
    )
    edges = display_edges(histogram)[0]
    edges = np.unique(lower_ends(bins_of(edges)))
    return edges if edges[-1] > ends[-1] else np.append(edges, max(top, np.nextafter(ends[-1], np.inf)))


def _fine(used: Counts, documents: Counts) -> Counts:
    """Return the bins that begin at about equal shares of the documents."""
    total = np.cumsum(documents)
    wanted = np.linspace(0, total[-1], FINE_CUTS + 1)[1:-1]
    return np.unique(used[np.searchsorted(total, wanted)])


def _positions(values: Floats, edges: Floats) -> Floats:
    """Return where values stand among the bars: the number of the bar and the share of it."""
    bars = len(edges) - 1
    bar = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bars - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        share = (values - edges[bar]) / (edges[bar + 1] - edges[bar])
    found: Floats = np.clip(bar + np.nan_to_num(share), 0, bars)
    return found


def ranks_of(cuts: Sequence[Cuts], values: Floats) -> npt.NDArray[np.uint8]:
    """Return how many cuts lie at or below each value (n, rules), `MISSING` without a value."""
    ranks = np.full(values.shape, MISSING, np.uint8)
    for rule, each in enumerate(cuts):
        column = values[:, rule]
        there = ~np.isnan(column)
        ranks[there, rule] = np.searchsorted(each.values, column[there], side="right")
    return ranks


# ------------------------------------------------------------------------------------------------ what the script gets


def page_data(answer: WhatIf) -> dict[str, Any]:
    """Return all that the page shows, as JSON-able values."""
    counts, bounds = answer.counts, answer.counts.bounds
    bins = counts.sums.bins.dense()
    rules = range(len(bounds.signals))
    cuts = {group: [cuts_of(counts, bins, rule, group) for rule in rules] for group in counts.shown}
    return {
        "name": _last(answer.root),
        "by": shown_by(answer.by) if answer.by else None,
        "level": bounds.levels[bounds.step - 1] if bounds.step else None,
        "given": answer.level,
        "keepsMissing": bounds.nulls == "keep",
        "nulls": bounds.nulls,
        "levels": list(bounds.levels),
        "rules": [_rule(answer, rule, cuts_of(counts, bins, rule, None)) for rule in rules],
        "groups": [_group(counts, group, own) for group, own in cuts.items()],
        "rest": _rest(counts),
        "tokensPerByte": counts.sizes.tokens_per_byte,
        "knowsText": not bool(np.isnan(counts.sizes.per_unit[counts.shown]).any()),
        "overlap": [answer.overlap[name] for name in (ALL, *(bounds.groups[group] for group in cuts))],
        "sample": _sample(counts, cuts),
        "examples": [_example(answer, row) for row in answer.examples],
        "notes": [answer.measure, *answer.notes, *unread_note(answer)],
        "kind": bounds.kind,
        "column": answer.by,
    }


def _rule(answer: WhatIf, rule: int, cuts: Cuts) -> dict[str, Any]:
    """Return one rule: its name, and its histogram over all groups."""
    return {
        "name": answer.rule_names[rule],
        "signal": answer.counts.bounds.signals[rule],
        "whole": not answer.counts.sums.fractions[rule, 0],
        "edges": _numbers(cuts.edges),
        "bars": cuts.bars.tolist(),
    }


def _group(counts: Counted, group: int, cuts: Sequence[Cuts]) -> dict[str, Any]:
    """Return one group: exact counts for its bounds and levels, and the cuts of all rules. Counts are documents and bytes."""
    sums, per_unit = counts.sums, float(counts.sizes.per_unit[group])
    levels = range(1, len(counts.bounds.levels) + 1)
    kept = [sums.kept[group], *(sums.reached[group, step:].sum(axis=0) for step in levels)]
    return {
        "name": counts.bounds.groups[group],
        "perUnit": per_unit if math.isfinite(per_unit) else 1.0,
        "total": sums.total[group].tolist(),
        "kept": [each.tolist() for each in kept],
        "only": sums.only[group].tolist(),
        "rules": [_cuts(each, sums.missing[rule, group].tolist()) for rule, each in enumerate(cuts)],
    }


def _cuts(cuts: Cuts, missing: list[int]) -> dict[str, Any]:
    return {
        "cuts": _numbers(cuts.values),
        "at": [round(place, 3) for place in cuts.places.tolist()],
        "left": cuts.left.tolist(),
        "whole": cuts.whole.tolist(),
        "missing": missing,
        "edges": _numbers(cuts.edges),
        "bars": cuts.bars.tolist(),
        "upperCuts": sorted({place for place in cuts.upper if place >= 0}),
        "lower": cuts.lower,
        "upper": cuts.upper,
    }


def _numbers(values: Any) -> list[float]:
    """Return numbers for JSON, whole ones as integers: they are shorter."""
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in values.tolist()]


def _rest(counts: Counted) -> dict[str, Any] | None:
    """Return the documents of groups that have no sliders: those without bounds, which every rule drops, and the smallest of many groups."""
    without, *documents = counts.sums.total[:, 0].tolist()
    others = [number for group, number in enumerate(documents, 1) if number and group not in counts.shown]
    if not without and not others:
        return None
    return {"without": NO_GROUP, "documents": without, "others": sum(others), "groups": len(others)}


def _sample(counts: Counted, cuts: Mapping[int, Sequence[Cuts]]) -> dict[str, Any]:
    """Return the sample: for each document its group among those that are shown, its units, and its ranks."""
    rows = counts.sums.sample.settled().rows
    own = [rows[rows["group"] == group] for group in cuts]
    ranks = [ranks_of(each, found["values"]) for each, found in zip(cuts.values(), own, strict=True)]
    return {
        "groups": _base64(np.repeat(np.arange(len(own), dtype=np.uint8), [len(found) for found in own])),
        "units": _base64(np.concatenate([found["size"] for found in (*own, rows[:0])]).astype(np.float32)),
        "ranks": _base64(np.concatenate([*ranks, np.zeros((0, len(counts.names)), np.uint8)])),
        "given": GIVEN,
    }


def _base64(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _example(answer: WhatIf, row: ExampleRow) -> dict[str, Any]:
    shown = vars(row).copy()
    text = _visible(shown.pop("excerpt"))
    return {**shown, "rule": answer.rule_names.index(row.rule), "id": _visible(row.id), "text": text}


def _visible(text: str) -> str:
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
