"""Datasets whose rows were made together, and sets of duplicates that are read together.

Datasets whose rows were made together: each names all of them in its dataset-wide record, ``info["datasets"]``, in one order.

An entry is the place of a dataset as seen from the one that has the record (``.`` is that one itself), and the key of its rows, which tells the datasets of a
call apart: what lies at the place of a dataset that is gone does not pass for it.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from dolma_dask.errors import AlignmentError
from dolma_dask.formats import layout
from dolma_dask.journal import Journal, Record
from dolma_dask.rules.values import Name

COMPARED = "compared"
"""Key in the dataset-wide record of a set for which the documents of some shards alone were compared: how many of how many."""

OWN = "."
"""A dataset as seen from itself."""

MAX_DATASETS = 1000
"""Datasets of a call."""


def datasets_in(record: Record) -> list[tuple[str, str]]:
    """Return place and key of the datasets of a dataset-wide record; none if its dataset is alone.

    Raises `AlignmentError`: the record is not as it was written.
    """
    try:
        found = msgspec.convert(record.info.get("datasets", []), list[tuple[str, str]])
        places = [place for place, _ in found]
        is_whole = len(set(places)) == len(places) <= MAX_DATASETS and (OWN in places) == bool(places)
    except msgspec.ValidationError:
        is_whole = False
    if not is_whole:
        raise AlignmentError(
            f"the record of {record.unit} does not name the datasets that were made together; expected it as it was written. Make the set again.",
            shard=record.shard,
        )
    return found


def duplicate_notes(root: str, names: Iterable[str]) -> Iterator[str]:
    """Name the sets of `dedupe` that compared a part of the documents, unless another goes on from them; and the pairs among them, and published ones, whose
    survivors the other one may flag.
    """
    if not (every := sorted(names)):
        return
    journal = Journal(root, "dedupe")
    for name in every:
        known = journal.records.get(_folder(name))
        part = known.info.get(COMPARED) if known else None
        if part and not any(_reads(journal, later, name) for later in every if later != name):
            yield f"{name} compared the documents of {part}; duplicates among the others are kept"
    runs = {run.writes: run.params for run in journal.runs}
    made = {name: runs[(_folder(name),)] for name in every if (_folder(name),) in runs}
    params = {name: made.get(name, {}) for name in every}
    # stable: published ones come first, fuzzy ones last
    every.sort(key=lambda name: (name in made, params[name].get("how") == "fuzzy"))
    for one, other in combinations(every, 2):
        if not _is_safe(journal, params, one, other):
            before = every[: every.index(other)]
            alone = [name for name in before if not _is_safe(journal, params, name, other)]
            yield (
                f"{one} and {other} chose their survivors each by itself: where that of one is flagged in the other, no copy of a text is left. Choose the "
                f"second among those that the first leaves: dolma-dask dedupe ... {_chained(other, params[other], alone)}"
            )


def _is_safe(journal: Journal, params: Mapping[str, Mapping[str, Any]], one: str, other: str) -> bool:
    """Tell whether two sets together leave a copy of each text: one goes on from the other, or they choose alike."""
    if _reads(journal, one, other) or _reads(journal, other, one):
        return True
    return _are_nested(params[one], params[other]) and _places(journal, one) == _places(journal, other)


def _chained(name: str, made: Mapping[str, Any], others: Sequence[str]) -> str:
    """Return options that make a set of those documents that others leave, beside the rule that it has."""
    rule = made.get("where")
    known = [f"({rule})" if " or " in rule else rule] if isinstance(rule, str) else []
    rule = " and ".join([*known, *(f"{Name(one)} is None" for one in others)])
    how = "--how fuzzy " if made.get("how") == "fuzzy" else ""
    return f"{how}--name {name} --where {shlex.quote(rule)}"


def _places(journal: Journal, name: str) -> list[object]:
    """Return the datasets whose documents are in the order of a set, the first one first."""
    record = journal.records.get(_folder(name))
    return [] if record is None else [place for place, _ in datasets_in(record)]


def _reads(journal: Journal, name: str, other: str) -> bool:
    """Tell whether a set was made with another one in its rule."""
    record = journal.records.get(_folder(name))
    return record is not None and any(item.path.startswith(_folder(other)) for item in record.inputs)


def _folder(name: str) -> str:
    """Return the folder of a set, which is the unit of its dataset-wide record too."""
    return f"{layout.ATTRIBUTES}/{name}/"


_ORDER = ("keep", "rank", "where", "within")


def _are_nested(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether the best of a cluster of the one is the best of its clusters in the other too: equal texts are in one cluster of similar ones."""
    is_of_texts = one.get("how") == "exact" and one.get("by") == "text"
    is_same_order = all(one.get(name) == other.get(name) for name in _ORDER)
    return is_of_texts and is_same_order and (other.get("how") == "fuzzy" or other.get("by") == "text")
