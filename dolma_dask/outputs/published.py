"""Tables as RedPajama-V2 publishes them, one for each shard of documents, beside those of other components."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.engine import Plan, Unit
from dolma_dask.engine.documents import DocumentStage
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.redpajama import Component
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import dataset_notes
from dolma_dask.options.base import Opt, without_empty
from dolma_dask.options.groups import check_outside
from dolma_dask.options.kept import KeptOptions, RuleLike, rule_of
from dolma_dask.options.records import ReadOptions, budget
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.published import combined_places
from dolma_dask.reading.selection import rule_notes, select
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.sink import DocumentRows, Output


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(KeptOptions, ReadOptions):
    """Options of commands that write published tables."""

    where: Annotated[
        RuleLike, Opt("Only documents for which this holds, as in mix.", kind="str", convert=rule_of)
    ] = None


class PublishedOutput(Output[DocumentRows], Protocol):
    """Tables of a component of RedPajama-V2, one for each shard of documents."""

    def key(self, documents: Mapping[str, Any], policy: RecordPolicy) -> str:
        """Return the key of the tables of some documents, of which `documents` says what decides them."""
        ...


def write_tables(
    dataset: Dataset, output: PublishedOutput, component: Component, options: PublishedOptions
) -> Summary:
    """Write a table for each shard, beside those of other components.

    Raises `UsageError`: published files were combined in the shards.
    """
    _check_not_combined(dataset)
    policy, where = options.policy, options.where
    mixture = make_mixture(select(options.selected(dataset), where, options.attributes))
    stage, key = DocumentStage((output,), policy, output.verb), output.key(mixture.params(), policy)
    shown = {"where": None if where is None else str(where), "source": dataset.source}
    tables = {shard.path: component.path(shard.path) for shard in dataset.shards}
    layout.check_no_collision(list(tables.values()))
    for folder in {path.rpartition("/")[0] for path in tables.values()}:
        check_outside(files.join(output.root, folder), dataset.root)
    plan = Plan(
        stage=stage,
        root=output.root,
        tasks=[stage.task(one, Unit(tables[one.name], key)) for one in mixture.sources],
        params=without_empty({"from": dataset.root, **shown}),
        writes=("",),
        origin=dataset.root,
        reads=component.suffixes,
        all_units=frozenset(tables.values()),
        max_bad_fraction=budget(policy),
        notes=dataset_notes(dataset),
    )
    summary = engine.run(plan, options).summary
    return replace(summary, notes=(*summary.notes, *rule_notes(summary)))


def _check_not_combined(dataset: Dataset) -> None:
    shards = combined_places(dataset.root).keys() & {shard.path for shard in dataset.shards}
    if shards:
        raise UsageError(
            f"{dataset.root}/documents/{min(shards)} has the documents of several published files; expected one file in each shard, since RedPajama-V2 has "
            "a table for each. Convert the same files without combine into another dataset, and make the tables of that."
        )
