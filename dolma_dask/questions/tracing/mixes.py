"""What mixes of a dataset have made of one document: the recorded rule of each, evaluated on that document."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.errors import DolmaDaskError
from dolma_dask.io import files
from dolma_dask.journal import Journal, RunRecord
from dolma_dask.options.base import fields_of
from dolma_dask.reading.entry_points import EntryPoints
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.recipe import RecipeOptions
from dolma_dask.reading.selection import select

_VERBS = ("mix", "transform")


class MixOutcome(Struct, frozen=True):
    """What a version has of a document, and why."""

    version: str  # URL of its root
    verb: str
    rule: str  # as it was recorded, empty for none
    dropped_by: tuple[str, ...]  # conditions that drop the document, as the rule says now; none: it is kept
    is_there: bool  # whether the version has a document of this id
    note: str = ""  # why the rule could not be evaluated, or what else decides


def mixes_of(
    dataset: Dataset,
    shard: Shard,
    row: int,
    points: EntryPoints,
    versions: Sequence[str],
    having: Sequence[str],
) -> Iterator[MixOutcome]:
    """Yield what the versions among some datasets that were made of this one have of a document; `having` are those that have its id."""
    roots = {files.resolved(url) for url in having}
    for url in versions:
        for run in _runs(url, dataset.root):
            is_there = files.resolved(url) in roots
            rule = str(run.params.get("where") or "")
            try:
                dropped, note = _reasons(dataset, shard, row, points, run.params), ""
            except DolmaDaskError as error:
                dropped, note = (), f"the rule cannot be evaluated any more: {error}"
            yield MixOutcome(url, run.verb, rule, dropped, is_there, note or _beside(run, dropped, is_there))


def _runs(version: str, origin: str) -> Iterator[RunRecord]:
    """Yield the newest run of each verb that made a version of a dataset."""
    for verb in _VERBS:
        for run in Journal(version, verb, runs_only=True).newest.values():
            if run.origin and files.resolved(files.seen_from(version, run.origin)) == files.resolved(origin):
                yield run


def _reasons(dataset: Dataset, shard: Shard, row: int, points: EntryPoints, params: Any) -> tuple[str, ...]:
    attributes = tuple(params.get("attributes", ()))
    recipe = _recipe(params)
    selection = select(dataset, params.get("where"), attributes)
    mixture = make_mixture(selection, recipe, attributes, in_order=recipe.merge_attributes)
    return mixture.source(shard).reasons(row, points)


def _recipe(params: Any) -> RecipeOptions:
    """Return the options that a journal keeps of what was done to documents."""
    names = {field.name for field in fields_of(RecipeOptions)}
    known = {name: value for name, value in params.items() if name in names}
    return RecipeOptions(**known | ({"sample": params["sample_rate"]} if "sample_rate" in params else {}))


def _beside(run: RunRecord, dropped: Sequence[str], is_there: bool) -> str:
    """Say what else has decided, where the version is not as the rule says."""
    if bool(dropped) == (not is_there):
        return ""
    if not dropped and run.params.get("downsampled"):
        return "the rule keeps it; it was not drawn (downsample)"
    if not dropped:
        return "the rule keeps it, and the version has none of this id: it was left out for its text, removed later, or made of other shards"
    return "the rule drops it now, and the version has one of this id: attributes, rule or documents have changed since, or another document has the id"
