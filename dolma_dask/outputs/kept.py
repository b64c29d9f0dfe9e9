"""The documents of a dataset that a rule keeps, for outputs of a file for each shard, and the run that makes the files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.engine import Plan
from dolma_dask.engine.documents import DocumentList
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.kept import KeptOptions
from dolma_dask.options.records import RecordOptions
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.kept.planning import make_mixture
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.reading.selection import rule_notes, select
from dolma_dask.results.summary import Summary


@dataclass(frozen=True, kw_only=True)
class FileOptions(KeptOptions, RecordOptions):
    """Options of commands that write something of the documents that a rule keeps."""

    def documents(self, dataset: Dataset, to: str, beside: Sequence[str] = ()) -> DocumentList:
        """Return the documents of a dataset that are to be written to a folder; `beside` names columns that the output takes besides those of all documents."""
        part = self.selected(dataset)
        columns = find_columns(part, beside, self.attributes) if beside else None
        mixture = make_mixture(select(part, self.where, self.attributes), beside=columns).for_targets(to)
        shown = {"where": None if self.where is None else str(self.where), **dataset.params}
        return documents_of(mixture, dataset, mixture.params(), shown)


def documents_of(
    mixture: Mixture, dataset: Dataset, params: Mapping[str, Any], shown: Mapping[str, Any]
) -> DocumentList:
    """Return the documents of a mixture of some or all shards of a dataset; `params` decides them, `shown` says the same for people."""
    return DocumentList(
        origin=dataset.root,
        parts=mixture.sources,
        shards=tuple(shard.path for shard in dataset.shards),
        params=params,
        shown=shown,
        notes=(*dataset_notes(dataset), *mixture.notes),
        is_narrowed=len(mixture.dataset.shards) < len(dataset.shards),
    )


def make_files(plan: Plan, options: RunOptions) -> Summary:
    """Make what is left of a plan of documents, and say what their counts tell of the rule."""
    summary = engine.run(plan, options).summary
    return replace(summary, notes=tuple(dict.fromkeys((*summary.notes, *rule_notes(summary)))))
