"""Documents that `hdf5` reads: those of a dataset that a rule keeps. Raw files of the tool that it replaces are in `raw`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dolma_dask.verbs.mix.planning import make_mixture
from dolma_dask.verbs.options import DatasetLike, ReadArgs, RuleLike, as_dataset, dataset_notes, selected
from dolma_dask.verbs.selection import select
from dolma_dask.verbs.sinks import DocumentSource


@dataclass(frozen=True)
class Documents:
    """All documents of a run, in the order of rows."""

    origin: str  # root of what is read
    parts: tuple[DocumentSource, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that decide the documents, besides the bytes of the files."""
    shown: Mapping[str, Any] = field(default_factory=dict)  # the same for people
    notes: tuple[str, ...] = ()  # for people


def documents_of(
    dataset: DatasetLike, where: RuleLike, attributes: Sequence[str], source: str | None, options: ReadArgs
) -> Documents:
    """Return the documents of a dataset that `where` keeps; `options` choose its shards."""
    found = as_dataset(dataset, source)
    mixture = make_mixture(select(selected(found, options), where, attributes))
    shown = {"where": None if where is None else str(where), "source": source}
    return Documents(found.root, mixture.sources, mixture.params(), shown, dataset_notes(found))
