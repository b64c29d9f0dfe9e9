"""Tables as RedPajama-V2 publishes them, one for each shard of documents, beside those of other components."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.engine.documents import DocumentSource, file_plan
from dolma_dask.errors import UsageError
from dolma_dask.formats.redpajama import Component
from dolma_dask.options.base import Opt
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.outputs.kept import FileOptions, make_files
from dolma_dask.reading.published import combined_places
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.sink import DocumentRows, Output


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(FileOptions):
    """Options of commands that write published tables."""

    where: Annotated[
        RuleLike, Opt("Only documents for which this holds, as in mix.", kind="str", convert=rule_of)
    ] = None


def write_tables(
    dataset: Dataset,
    output: Output[DocumentRows],
    component: Component,
    options: PublishedOptions,
    decided: Mapping[str, Any],
    *,
    version: int,
    shown: Mapping[str, Any] | None = None,
    beside: Callable[[DocumentSource], DocumentSource] | None = None,
) -> Summary:
    """Write a table for each shard, beside those of other components; see `file_plan`, whose `options` are `decided` here."""
    documents = options.documents(dataset, output.root)
    if beside:
        documents = replace(documents, parts=tuple(map(beside, documents.parts)))
    tables = {shard: component.path(shard) for shard in documents.shards}
    plan = file_plan(output, documents, tables, options.policy, decided, version=version, shown=shown)
    return make_files(replace(plan, reads=component.suffixes), options)


def check_not_combined(dataset: Dataset) -> None:
    """Refuse shards of several published files. Raises `UsageError`."""
    shards = combined_places(dataset.root).keys() & {shard.path for shard in dataset.shards}
    if shards:
        raise UsageError(
            f"{dataset.root}/documents/{min(shards)} has the documents of several published files; expected one file in each shard, since RedPajama-V2 has "
            "a table for each. Convert the same files without combine into another dataset, and make the tables of that."
        )
