"""Columns of a dataset by name: fields of documents and of their metadata, and attributes, in lockstep and proved.

Only what is requested is read: attributes alone leave the documents closed wherever the journal proves that they belong together
(`dolma_dask.reading.reader`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import counted
from dolma_dask.errors import DataError, ExpressionError, SchemaError, UsageError
from dolma_dask.formats.documents import METADATA, STRINGS
from dolma_dask.formats.json.attributes import AttributeKind, called, value_kind
from dolma_dask.formats.metadata import (
    AS_TEXT,
    PREFIX,
    field_kind,
    is_as_text,
    is_field,
    metadata_shapes,
    scan_metadata,
)
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import grouped
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.reader import IDENTITY, AlignedShard
from dolma_dask.reading.sets import AttributeSets, columns_of
from dolma_dask.rules.groups import LabelKind
from dolma_dask.rules.metrics import Metric, find_metric, metrics_in
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.values import Value, ambiguous_name, endings, unknown_name
from dolma_dask.text import compute as pc

T = TypeVar("T")

Kind = Literal["text"] | AttributeKind
"""Kind of a column: "text" for a string of the documents, else see `dolma_dask.formats.json.attributes.AttributeKind`."""

SAMPLED_SHARDS = 8
"""Shards, evenly spread, whose first rows tell the kinds of the fields of the metadata; the others are looked into if a field is in none of these."""

SAMPLED_AT_ONCE = 64
"""Further shards that are looked into at a time while a field is not found."""

SEARCHED_BYTES = 2_000_000_000
"""Stored bytes of shards of which all rows are looked into for a field that no first row has: about a minute."""

SAMPLING_THREADS = 8

SAMPLED_ROWS = 1000

_IN_PART = "in all rows of"

NUMERIC = ("document", "number", "dict")
"""Kinds of columns with one number per document."""


class Columns(Struct, frozen=True):
    """Columns of a dataset; see `find_columns`."""

    dataset: Dataset  # all of its shards
    names: tuple[str, ...]  # full names, in the order of the request
    kinds: Mapping[str, Kind]  # what each holds
    fields: Mapping[str, AttributeKind]  # those of the metadata
    sets: AttributeSets | None  # the attribute sets that the others are read from
    computed: Mapping[str, Value] = {}  # metrics among `names`, over full names

    def work(self, shard: Shard, *, exact: bool = False, identities: bool = False) -> AlignedShard:
        """Return these columns of `shard`; with `exact`, numbers keep all digits; with `identities`, id and source come first, and no document is
        opened for them."""
        apart = IDENTITY if identities else ()
        return AlignedShard(
            self.dataset.root,
            shard,
            tuple(name for name in self.names if name in (*STRINGS, METADATA) and name not in apart),
            self.sets.sources(shard, sorted(self._read)) if self.sets else (),
            self.fields,
            self.dataset.source,
            exact=exact,
            order=self.names,
            computed=self.computed,
            identities=identities,
        )

    def with_computed(self, name: str, value: Value) -> "Columns":
        """Return these columns, and one of strings that is computed of some."""
        kinds: dict[str, Kind] = {**self.kinds, name: "string"}
        computed = {**self.computed, name: value}
        return replace(self, names=(*self.names, name), kinds=kinds, computed=computed)

    def with_rule(self, rule: Rule | None, attributes: Sequence[str] = ()) -> "Columns":
        """Return these columns, and those that a rule over full names reads; for `attributes` see `find_columns`."""
        more = sorted(rule.names - set(self.names)) if rule is not None else []
        return find_columns(self.dataset, [*self.names, *more], attributes) if more else self

    @property
    def _read(self) -> frozenset[str]:
        """All columns that are read, also for what is computed."""
        return frozenset(self.names).union(*(value.names for value in self.computed.values()))

    def params(self) -> dict[str, Any]:
        """Return what decides the values, besides the files."""
        sets = list(self.sets.files) if self.sets else []
        computed = {name: value.canonical() for name, value in self.computed.items()}
        return {
            "columns": list(self.names),
            "attributes": sets,
            **self.dataset.params,
            **({"computed": computed} if computed else {}),
        }


def find_columns(dataset: Dataset, names: Sequence[str], attributes: Sequence[str] = ()) -> Columns:
    """Find columns by name: ``id text source added created metadata`` (its JSON text), ``metadata.<field>``, attribute keys, for which
    a unique ending is enough (of one set: ``set/ending``), and metrics (`dolma_dask.rules.metrics`).

    `attributes` are the sets to look in, by default all; only those that have one of the names are read. Raises `ExpressionError`: there
    is no such column, or a name stands for several; `UsageError`: a name is given twice, or a set is unknown;
    `MissingAttributesError`: a shard lacks an attribute file.
    """
    catalog = Catalog(dataset)
    computed = find_metrics(catalog, names, attributes)
    stored = [name for name in names if name not in computed]
    read = dict.fromkeys([*stored, *sorted(name for value in computed.values() for name in value.names)])
    fields = find_fields(dataset, [name for name in read if is_field(name)])
    keys = [name for name in read if not is_field(name) and name not in (*STRINGS, METADATA)]
    full, sets = find_keys(catalog, keys, attributes) if keys else ({}, None)
    columns = tuple(full.get(name, name) for name in names)
    for name in columns:
        if columns.count(name) > 1:
            raise UsageError(f"column {name!r} is requested twice; expected each once.", name=name)
    kinds: dict[str, Kind] = {name: "text" for name in columns if name in (*STRINGS, METADATA)}
    kinds.update({name: value_kind(kind) for name, kind in fields.items()})
    kinds.update({name: sets.kind(name) for name in full.values()} if sets else {})
    kinds.update(dict.fromkeys(computed, "number"))
    return Columns(dataset, columns, {name: kinds[name] for name in columns}, fields, sets, computed)


def find_metrics(catalog: Catalog, names: Sequence[str], attributes: Sequence[str] = ()) -> dict[str, Metric]:
    """Return the metrics among names, over full names of columns; `attributes` are the sets to look in, by default all."""
    candidates = metrics_in(names)
    if not candidates:
        return {}
    sets = tuple(attributes) or catalog.dataset.with_current_attributes().attributes
    known, _ = look_up(catalog, sets, lambda keys: {name: find_metric(name, keys) for name in candidates})
    return {name: value for name, value in known.items() if value is not None}


def find_keys(
    catalog: Catalog, names: Sequence[str], attributes: Sequence[str] = ()
) -> tuple[dict[str, str], AttributeSets]:
    """Return the full name of each attribute key, and the sets that have them; see `find_columns`."""
    sets = tuple(attributes) or catalog.dataset.with_current_attributes().attributes
    if attributes:
        catalog.open(attributes)  # all that were named have to be there
    full, keys = look_up(
        catalog, sets, lambda known: {name: full_name(name, [*STRINGS, METADATA, *known]) for name in names}
    )
    places = columns_of(keys)
    needed = {places[column][0] for column in full.values() if column in places}
    return full, catalog.open([name for name in sets if name in needed])


def look_up(
    catalog: Catalog, names: Sequence[str], resolve: Callable[[Sequence[str]], T]
) -> tuple[T, dict[str, frozenset[str]]]:
    """Return what `resolve` makes of the columns of some sets, finished or not, and the keys by set; labels that no document has count if a name stands for nothing else.

    Its error speaks of sets that cannot be read, are empty, or have the name with values of several kinds.
    """
    while True:
        try:
            return _look_up(catalog, names, resolve)
        except ExpressionError as error:
            if not catalog.expect_labels(names, str(error.details.get("name", ""))):
                raise


def _look_up(
    catalog: Catalog, names: Sequence[str], resolve: Callable[[Sequence[str]], T]
) -> tuple[T, dict[str, frozenset[str]]]:
    looked = {name: catalog.keys(name) for name in names}
    keys = {name: known for name, (known, _) in looked.items()}
    try:
        return resolve(sorted(columns_of(keys))), keys
    except ExpressionError as error:
        unread = [
            f"{name} could not be read ({why})"
            if why
            else f"{name} has no columns: there are no documents, or none has a value"
            for name, (known, why) in looked.items()
            if why or not known
        ]
        if wanted := error.details.get("name"):
            unread += [found for name in names if (found := catalog.mixed(name, str(wanted)))]
        if not unread:
            raise
        raise ExpressionError(f"{error}\nAttribute set {'; '.join(unread)}", **error.details) from error


def full_name(name: str, known: Sequence[str]) -> str:
    """Return the column that a name stands for; see `endings`."""
    ends = endings(name, known)
    if len(ends) > 1:
        raise ExpressionError(ambiguous_name(name, ends, str), name=name)
    if not ends:
        inside = f"; if it is a field of the metadata, write metadata.{name}" if "metadata" in known else ""
        raise ExpressionError(f"{unknown_name(name, known, str)}{inside}", name=name)
    return ends[0]


def find_fields(
    dataset: Dataset,
    names: Sequence[str],
    spell: Callable[[str], object] = str,
    *,
    in_all_rows: bool = True,
) -> dict[str, AttributeKind]:
    """Return the kinds of fields of the metadata, as the first rows of some shards show them; with `in_all_rows` as all rows do while a field is not found.

    Errors `spell` names as they are typed where `names` come from.
    """
    if not names:
        return {}
    asked = list(dict.fromkeys(name.removesuffix(AS_TEXT) for name in names))
    shapes, unread = _sampled_shapes(dataset, asked)
    searched = "in the first rows"
    missing = [name for name in asked if name not in shapes]
    if missing and in_all_rows:
        searched = _search(dataset, missing, shapes)
    return {name: _kind(dataset, name, shapes, f"{searched}{unread}", spell) for name in names}


def _kind(
    dataset: Dataset, name: str, shapes: Mapping[str, set[str]], looked: str, spell: Callable[[str], object]
) -> AttributeKind:
    """Return the kind of a field; `looked` tells where it was looked for."""
    found = shapes.get(name.removesuffix(AS_TEXT), set())
    if is_as_text(name) and (found or looked.startswith(_IN_PART)):
        if "." in name.removeprefix(PREFIX) and found & {"string", "number", "bool"}:
            raise SchemaError(
                f"{name}: a name with a dot in it, not one in an object; expected another field as text.",
                name=name,
            )
        return "any"
    kind = field_kind(found)
    if kind is not None:
        return kind
    if len(found) < 2:
        known = sorted(other for other, values in shapes.items() if field_kind(values) is not None)
        why = (
            f"{called(next(iter(found)))}; its text is {spell(name + AS_TEXT)}"
            if found
            else f"null or absent {looked}"
        )
        raise ExpressionError(
            f"{unknown_name(name, known, spell)} (fields of the metadata; it is {why})", name=name
        )
    kinds = sorted({called(shape) for shape in found})
    raise SchemaError(
        f"{name} is {' and '.join(kinds)} in different documents of {dataset.root}; expected a number, a string or a bool, the same in "
        f"all. Ask for its text, {spell(name + AS_TEXT)}, convert the field, or use another.",
        name=name,
    )


def _sampled_shapes(dataset: Dataset, names: Sequence[str]) -> tuple[dict[str, set[str]], str]:
    """Return the shapes of the values of all fields that were seen on the way to the requested ones, and why a file could not be looked into."""
    sampled: dict[str, set[str]] = {}
    unread = ""
    with ThreadPoolExecutor(SAMPLING_THREADS) as pool:
        for shards in _rounds(dataset.shards):
            for found in pool.map(partial(_sample, dataset), shards):
                if isinstance(found, DataError):
                    unread = unread or f"; a file could not be read: {found}"
                    continue
                for name, shapes in found.items():
                    sampled.setdefault(name, set()).update(shapes)
            if sampled.keys() >= set(names):
                break
    return sampled, unread


def _rounds(shards: Sequence[Shard]) -> Iterator[Sequence[Shard]]:
    """Yield some shards from all over the listing, then the others in their order."""
    count = len(shards)
    spread = {number * count // SAMPLED_SHARDS for number in range(SAMPLED_SHARDS)} if count else set()
    yield [shards[number] for number in sorted(spread)]
    others = [shard for number, shard in enumerate(shards) if number not in spread]
    for first in range(0, len(others), SAMPLED_AT_ONCE):
        yield others[first : first + SAMPLED_AT_ONCE]


def _search(dataset: Dataset, names: Sequence[str], shapes: dict[str, set[str]]) -> str:
    """Look for fields in all rows of shards of up to `SEARCHED_BYTES`, until each is found; add their shapes, and tell where was looked."""
    searched = grouped(dataset.shards, lambda shard: shard.bytes, SEARCHED_BYTES)[:1]
    left = set(names)
    with ThreadPoolExecutor(SAMPLING_THREADS) as pool:
        for found in pool.map(partial(_look_for, dataset, left), *searched):
            for name, values in found.items():
                shapes.setdefault(name, set()).update(values)
    if len(searched[0]) == len(dataset.shards):
        return "in all rows"
    return f"{_IN_PART} {counted(len(searched[0]), 'shard')} and the first of the others"


def _look_for(dataset: Dataset, left: set[str], shard: Shard) -> dict[str, set[str]]:
    """Return the shapes of the fields `left` in the first rows of a shard that have them; take out what was found, for all who look."""
    url = files.join(dataset.root, shard.document)
    shapes: dict[str, set[str]] = {}
    with suppress(DataError):
        for block in DocumentFile(url, (METADATA,), source=dataset.source):
            if not (names := sorted(left)):
                break
            texts = block.batch.column(METADATA)
            values, _ = scan_metadata(texts, dict.fromkeys((name + AS_TEXT for name in names), "any"))
            for name in names:
                rows = texts.filter(pc.is_valid(values[name + AS_TEXT])).slice(0, SAMPLED_ROWS)
                if len(rows):
                    shapes[name] = metadata_shapes(rows).get(name, {"other"})
                    left.discard(name)
    return shapes


def _sample(dataset: Dataset, shard: Shard) -> dict[str, set[str]] | DataError:
    """Return the fields of the metadata and their shapes in the first rows of a shard; what is wrong with the file, its reader says too."""
    url = files.join(dataset.root, shard.document)
    try:
        block = next(iter(DocumentFile(url, (METADATA,), source=dataset.source)), None)
    except DataError as error:
        return error
    return metadata_shapes(block.batch.column(METADATA).slice(0, SAMPLED_ROWS)) if block else {}


def label_kind(kind: Kind) -> LabelKind:
    """Return the type of labels of a column."""
    if kind in NUMERIC:
        return "number"
    return "bool" if kind == "bool" else "string"
