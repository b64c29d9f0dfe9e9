"""Documents above the limits that taggers give their signals (`limits` of a tagger), and above that of boilerplate: how many of those that are kept, and the worst of each to read."""

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from dolma_dask.figures.histogram import Histogram
from dolma_dask.formats import layout
from dolma_dask.pages.history import Step
from dolma_dask.pages.model import Example, Junk
from dolma_dask.reading.sets import share_key
from dolma_dask.taggers.base import ViewTagger
from dolma_dask.taggers.registry import find_built_in

if TYPE_CHECKING:
    from dolma_dask.pages.survey import Findings


class Limit(Struct, frozen=True):
    """A number above which a signal tells of junk."""

    key: str
    value: float
    meaning: str  # of the signal
    is_shared: bool = False  # what it tells of is in many documents, and no fault of one

    def rank(self, example: Example) -> tuple[float, str, int]:
        """Return how bad a document is, the worst first, then its shard and row, so that equal values have an order."""
        return -example.value, example.shard, example.row


BOILERPLATE = 0.05, "characters of paragraphs that many documents have, by all characters"
"""Limit of the share of a text that `dedupe` flags with `min_copies`, and what that is."""


def boilerplate_shares(sets: Iterable[str], dedupe: Step | None) -> set[tuple[str, str]]:
    """Return the attribute sets and keys of shares of paragraphs that many documents have; of others a first copy stays, which is no junk."""
    if dedupe is None:
        return set()
    found = set()
    for name in sets:
        params = dedupe.params_of(f"{layout.ATTRIBUTES}/{name}/")
        if params.get("min_copies"):
            found.add((name, share_key(params.get("key") or name)))
    return found


def limits_of(
    keys: Iterable[str], places: Mapping[str, tuple[str, str]], boilerplate: Container[tuple[str, str]] = ()
) -> tuple[Limit, ...]:
    """Return the limits of these signals; `places` are the attribute set and the whole key of each, `boilerplate` those of shares of boilerplate."""
    found = []
    for key in keys:
        if places[key] in boilerplate:
            found.append(Limit(key, *BOILERPLATE, is_shared=True))
        tagger, _, name = places[key][1].rpartition("__")
        limits = _limits(tagger.rpartition("__")[2])
        if name in limits:
            found.append(Limit(key, *limits[name]))
    return tuple(found)


@cache
def _limits(tagger: str) -> Mapping[str, tuple[float, str]]:
    known = find_built_in(tagger) if tagger else None
    if not isinstance(known, ViewTagger):
        return {}
    return {name: (value, known.meanings.get(name, "")) for name, value in known.limits.items()}


def junk_rows(limits: Sequence[Limit], findings: "Findings", values: Mapping[str, Histogram]) -> list[Junk]:
    """Make the table of signals with documents above their limit, most documents first; `values` are those of the documents that were looked at."""
    rows = [
        Junk(
            limit.key,
            limit.value,
            findings.above[limit],
            findings.above[limit] / values[limit.key].n,
            limit.meaning,
            findings.worst.get(limit, []),
            limit.is_shared,
        )
        for limit in limits
        if findings.above.get(limit)
    ]
    return sorted(rows, key=lambda row: (-row.documents, row.key))
