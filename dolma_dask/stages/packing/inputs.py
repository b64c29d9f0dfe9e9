"""What `hdf5` reads: the documents of a dataset that a rule keeps. Raw files of the tool that it replaces are in `hdf5_raw`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from dolma_dask.engine import Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.mixing.rules import Rule
from dolma_dask.stages.options import DatasetLike, ReadArgs, RuleLike, as_dataset, dataset_notes, selected
from dolma_dask.stages.selection import SelectedShard, ShardWork, open_selected, select


class Rows(Protocol):
    """The documents of one part, as batches of columns; each iteration is the only one."""

    @property
    def counts(self) -> Mapping[str, float]:
        """What was counted on the way; after the last batch."""
        ...

    @property
    def inputs(self) -> tuple[InputRecord, ...]:
        """The files as they were read; after the last batch."""
        ...

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches without nulls."""
        ...


class Opener(Protocol):
    """Opens parts on workers; small and picklable."""

    def open(self, work: Any, columns: Sequence[str], policy: RecordPolicy, quarantine: Quarantine) -> Rows:
        """Return the rows of a part."""
        ...


@dataclass(frozen=True)
class Part:
    """What one task of the first pass reads: a shard, mostly.

    Attributes
    ----------
    name : str
        For progress, failures and the quarantine.
    inputs : tuple of Input
        Its files.
    work : object
        For the opener.
    """

    name: str
    inputs: tuple[Input, ...]
    work: Any


@dataclass(frozen=True)
class Documents:
    """All that is read, in the order of rows.

    Attributes
    ----------
    origin : str
        Root of what is read.
    opener : Opener
        Opens parts.
    parts : tuple of Part
        In order.
    params : Mapping
        What decides which documents there are, besides the bytes of the files.
    told : Mapping
        The same for people.
    notes : tuple of str
        What a person should know.
    """

    origin: str
    opener: Opener
    parts: tuple[Part, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectedRows:
    """The kept documents of a shard."""

    shard: SelectedShard

    @property
    def counts(self) -> Mapping[str, float]:
        """See `SelectedShard`."""
        return self.shard.counts

    @property
    def inputs(self) -> tuple[InputRecord, ...]:
        """Document and attribute files."""
        return self.shard.aligned.state.inputs

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the kept rows."""
        return iter(self.shard)


@dataclass(frozen=True)
class SelectionOpener:
    """Opens shards of a dataset, with a rule.

    Attributes
    ----------
    root : str
        Of the dataset.
    rule : Rule or None
        What is kept.
    source : str or None
        Source of documents that lack the field.
    """

    root: str
    rule: Rule | None
    source: str | None

    def open(
        self, work: ShardWork, columns: Sequence[str], policy: RecordPolicy, quarantine: Quarantine
    ) -> SelectedRows:
        """Return the kept rows of a shard; `id`, `source` and `text` are always read."""
        more = [name for name in columns if name not in ("id", "source", "text")]
        return SelectedRows(open_selected(self.root, work, self.rule, more, self.source, policy, quarantine))


def documents_of(
    dataset: DatasetLike,
    where: RuleLike,
    attributes: Sequence[str],
    source: str | None,
    options: ReadArgs,
) -> Documents:
    """Return the documents of a dataset that `where` keeps.

    Parameters
    ----------
    dataset : str, Dataset or Summary
        What to read.
    where : str or Rule, optional
        As in `mix`.
    attributes : sequence of str
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of documents that lack the field.
    options : ReadArgs
        ``only`` and ``prune``.
    """
    found = as_dataset(dataset, source)
    chosen = selected(found, options)
    selection = select(chosen, where, attributes)
    works = [(shard, selection.work(shard)) for shard in chosen.shards]
    return Documents(
        origin=found.root,
        opener=SelectionOpener(found.root, selection.rule, found.source),
        parts=tuple(Part(shard.path, selection.inputs(work), work) for shard, work in works),
        params=selection.params(),
        told={"where": None if where is None else str(where), "source": source},
        notes=dataset_notes(found),
    )
