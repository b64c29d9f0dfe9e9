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
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from dolma_dask.questions.what_if.answer import WhatIf
from dolma_dask.questions.what_if.cuts import Cuts, cuts_of, ranks_of
from dolma_dask.questions.what_if.ladder import GIVEN, NO_GROUP
from dolma_dask.questions.what_if.tables import sentences, unread_note
from dolma_dask.results.answer import SURROGATE, script_json
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.thresholds import shown_by

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
    page = _part("page.html")
    return re.sub(r"<!--(\w+)-->", lambda match: parts[match[1]], page)


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


# ------------------------------------------------------------------------------------------------ what the script gets


def page_data(answer: WhatIf) -> dict[str, Any]:
    """Return all that the page shows, as JSON-able values."""
    ladder, tally = answer.ladder, answer.tally
    shown = [
        group
        for group in range(1, len(ladder.groups))
        if ladder.places[group] < ladder.shown and tally.total[group, 0]
    ]
    cuts = {
        group: [cuts_of(ladder, tally, rule, group) for rule in range(len(ladder.signals))] for group in shown
    }
    return {
        "name": _last(answer.root),
        "by": shown_by(answer.by) if answer.by else None,
        "level": ladder.levels[ladder.step - 1] if ladder.step else None,
        "given": answer.level,
        "keepsMissing": ladder.nulls == "keep",
        "nulls": ladder.nulls,
        "levels": list(ladder.levels),
        "rules": [_rule(answer, rule) for rule in range(len(ladder.signals))],
        "groups": [_group(answer, group, cuts[group]) for group in shown],
        "rest": _rest(answer, shown),
        "tokensPerByte": answer.scale.tokens_per_byte,
        "knowsText": not bool(np.isnan(answer.scale.per_unit[shown]).any()),
        "overlap": _overlap(answer, shown),
        "sample": _sample(answer, shown, cuts),
        "examples": [
            {
                "rule": answer.rule_names.index(row.rule),
                "group": row.group,
                "bound": row.bound,
                "side": row.side,
                "limit": row.limit,
                "value": row.value,
                "id": _visible(row.id),
                "shard": row.shard,
                "row": row.row,
                "text": _visible(row.excerpt),
            }
            for row in answer.examples
        ],
        "notes": [answer.measure, *answer.notes, *unread_note(answer)],
        "kind": answer.ladder.kind,
        "column": answer.by,
    }


def _rule(answer: WhatIf, rule: int) -> dict[str, Any]:
    """Return one rule: its name, and its histogram over all groups."""
    cuts = cuts_of(answer.ladder, answer.tally, rule, None)
    return {
        "name": answer.rule_names[rule],
        "signal": answer.ladder.signals[rule],
        "whole": not answer.tally.fractions[rule, 0],
        "edges": _numbers(cuts.edges),
        "bars": cuts.bars.tolist(),
    }


def _group(answer: WhatIf, group: int, cuts: list[Cuts]) -> dict[str, Any]:
    """Return one group: exact counts for its bounds and levels, and the cuts of all rules. Counts are documents and bytes."""
    tally, scale = answer.tally, answer.scale
    per_unit = _finite(float(scale.per_unit[group]))
    kept = [
        tally.kept[group],
        *(tally.reached[group, step:].sum(axis=0) for step in range(1, len(answer.ladder.levels) + 1)),
    ]
    return {
        "name": answer.ladder.groups[group],
        "perUnit": per_unit,
        "total": tally.total[group].tolist(),
        "kept": [counts.tolist() for counts in kept],
        "only": tally.only[group].tolist(),
        "rules": [_cuts(each, tally.missing[rule, group].tolist()) for rule, each in enumerate(cuts)],
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
        "upperCuts": sorted(cuts.inclusive),
        "lower": list(cuts.lower),
        "upper": list(cuts.upper),
    }


def _numbers(values: Any) -> list[float]:
    """Return numbers for JSON, whole ones as integers: they are shorter."""
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value for value in values.tolist()]


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 1.0


def _rest(answer: WhatIf, shown: list[int]) -> dict[str, Any] | None:
    """Return the documents of groups that have no sliders: those without bounds, which every rule drops, and the smallest of many groups."""
    tally = answer.tally
    others = [group for group in range(1, len(answer.ladder.groups)) if group not in shown]
    if not tally.total[0, 0] and not tally.total[others, 0].any():
        return None
    return {
        "without": NO_GROUP,
        "documents": int(tally.total[0, 0]),
        "others": int(tally.total[others, 0].sum()),
        "groups": int((tally.total[others, 0] > 0).sum()),
    }


def _overlap(answer: WhatIf, shown: list[int]) -> list[list[list[int]]]:
    """Return the matrix of all groups, then that of each that is shown."""
    ladder = answer.ladder
    return [
        [list(row) for row in answer.overlap[ALL]],
        *(answer.tally.overlap[ladder.places[group]].tolist() for group in shown),
    ]


def _sample(answer: WhatIf, shown: list[int], cuts: Mapping[int, list[Cuts]]) -> dict[str, Any]:
    """Return the sample: for each document its group among those that are shown, its units, and its ranks."""
    sample = answer.tally.sample
    groups, units, ranks = (
        [np.zeros(0, np.uint8)],
        [np.zeros(0, np.float32)],
        [np.zeros((0, len(answer.rule_names)), np.uint8)],
    )
    for number, group in enumerate(shown):
        rows = sample.groups == group
        groups.append(np.full(int(rows.sum()), number, np.uint8))
        units.append(sample.sizes[rows].astype(np.float32))
        ranks.append(ranks_of(cuts[group], sample.values[rows]))
    return {
        "groups": _base64(np.concatenate(groups)),
        "units": _base64(np.concatenate(units)),
        "ranks": _base64(np.concatenate(ranks)),
        "given": GIVEN,
    }


def _base64(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _visible(text: str) -> str:
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
