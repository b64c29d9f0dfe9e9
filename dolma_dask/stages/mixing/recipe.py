"""What a mix does to each document, resolved against the attributes that are there: what workers are told."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dolma_dask.alignment import AttributeSets, AttributeSource, shard_inputs
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Input, inputs_of
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.layout import format_of
from dolma_dask.mixing.filters import Filter
from dolma_dask.mixing.replacements import Replacement
from dolma_dask.mixing.rules import Rule
from dolma_dask.stages.mixing.wishes import Wishes
from dolma_dask.stages.selection import Selection


@dataclass(frozen=True)
class SpanWork:
    """A rule of replacement as a worker applies it.

    Attributes
    ----------
    rule : Replacement
        As it was asked.
    key : str or None
        Attribute that is read as a column; None: every document is asked.
    column : str or None
        Column of strings that replace the spans; None: the replacement itself, or what every document is asked for.
    """

    rule: Replacement
    key: str | None
    column: str | None = None

    @property
    def is_slow(self) -> bool:
        """Whether every document is asked."""
        return self.key is None or (self.rule.selects and self.column is None)


@dataclass(frozen=True)
class Recipe:
    """What a worker does to the rows of a dataset; pickles.

    Attributes
    ----------
    where : Rule or None
        With full names.
    where_keys : Mapping[str, str]
        Attribute keys of that rule, and the sets they are read from.
    include, exclude : tuple of Filter
        See `Wishes`.
    spans : tuple of SpanWork
        Rules of replacement.
    wishes : Wishes
        The rest.
    columns : Mapping[str, tuple of str]
        Attribute keys that filters and replacements need, and the sets that have them, of which later ones win.
    lists : frozenset of str
        Those of these keys that are columns of spans.
    own : Mapping[str, AttributeKind]
        Those of these keys that documents themselves may have.
    objects : tuple of str
        Sets whose whole objects are needed, of which later ones win.
    """

    where: Rule | None = None
    where_keys: Mapping[str, str] = field(default_factory=dict)
    include: tuple[Filter, ...] = ()
    exclude: tuple[Filter, ...] = ()
    spans: tuple[SpanWork, ...] = ()
    wishes: Wishes = field(default_factory=Wishes)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: frozenset[str] = frozenset()
    own: Mapping[str, AttributeKind] = field(default_factory=dict)
    objects: tuple[str, ...] = ()

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All filters."""
        return (*self.include, *self.exclude)

    @property
    def is_slow(self) -> bool:
        """Whether documents are looked at one by one."""
        return any(item.is_slow for item in self.filters) or any(item.is_slow for item in self.spans)

    @property
    def looks_inside(self) -> bool:
        """Whether the documents' own attributes matter."""
        return bool(self.columns or self.spans or self.is_slow or self.wishes.merge_attributes)


@dataclass(frozen=True)
class MixWork:
    """What a worker needs for one shard."""

    root: str
    shard: Shard
    source: str | None
    sources: tuple[AttributeSource, ...]
    fields: Mapping[str, AttributeKind]
    recipe: Recipe


@dataclass(frozen=True)
class Mixture:
    """A dataset with what is done to its documents.

    Attributes
    ----------
    dataset : Dataset
        All of its shards.
    recipe : Recipe
        For workers.
    sets : AttributeSets or None
        Attribute sets that are read.
    kinds : Mapping[str, Mapping[str, AttributeKind]]
        By set: the keys to read, and as what.
    fields : Mapping[str, AttributeKind]
        Fields of the metadata that are read.
    selection : Selection
        The `where` rule.
    notes : tuple of str
        What a person should know.
    """

    dataset: Dataset
    recipe: Recipe
    sets: AttributeSets | None
    kinds: Mapping[str, Mapping[str, AttributeKind]]
    fields: Mapping[str, AttributeKind]
    selection: Selection
    notes: tuple[str, ...] = ()

    def work(self, shard: Shard) -> MixWork:
        """Return what a worker needs for `shard`."""
        sources = tuple(self._source(name, shard) for name in (self.sets.files if self.sets else ()))
        return MixWork(self.dataset.root, shard, self.dataset.source, sources, self.fields, self.recipe)

    def _source(self, name: str, shard: Shard) -> AttributeSource:
        assert self.sets is not None
        (source,) = (item for item in self.sets.sources(shard, ()) if item.name == name)
        kinds = dict(self.kinds[name])
        if format_of(source.info.path) == "parquet":  # scores of documents are plain numbers there
            declared = self.sets.kinds[name]
            kinds.update(declared if name in self.recipe.objects else {})
            kinds = {
                key: "document" if declared.get(key) == "document" else kind for key, kind in kinds.items()
            }
        is_lines = format_of(source.info.path) != "parquet"
        with_objects = is_lines and name in self.recipe.objects
        return replace(source, kinds=kinds, prefix=prefix_of(name), with_objects=with_objects)

    def inputs(self, work: MixWork) -> tuple[Input, ...]:
        """Return the files that `work` reads."""
        return inputs_of(work.root, shard_inputs(work.shard, work.sources))

    def params(self) -> dict[str, Any]:
        """Return what decides the output besides the bytes of the inputs."""
        params = self.selection.params()
        params["attributes"] = list(self.sets.files) if self.sets else []
        return params | self.recipe.wishes.params()


def prefix_of(name: str) -> str:
    """Return what stands before the keys of an attribute set in the columns of a worker."""
    return f"{name}\x1f"
