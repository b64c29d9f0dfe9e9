"""Columns of a dataframe or bag: names, origins and kinds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import METADATA, STRINGS
from dolma_dask.formats.layout import format_of
from dolma_dask.formats.metadata import is_field
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.columns import Kind, find_fields, find_keys, find_metrics
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.sets import AttributeSets, columns_of
from dolma_dask.rules.values import Value, endings

DEFAULT = ("id", "source", "text")
"""Columns that are read where none are named."""

ALL = "all"
"""Stands for every attribute set."""


class FrameColumn(Struct, frozen=True):
    """One column."""

    name: str  # in the dataframe
    kind: Kind  # what it holds
    set: str | None  # attribute set that it is read from; None: the documents
    key: str  # its name there
    value: Value | None = None  # of a metric, over the paths of `made_of`
    made_of: tuple["FrameColumn", ...] = ()  # what a metric is computed from

    @property
    def stored(self) -> tuple["FrameColumn", ...]:
        """Columns of files that are read for it."""
        return self.made_of or (self,)

    @property
    def path(self) -> str:
        """A name that no other column has: that of the document's field, or ``<set>/<key>``."""
        return self.key if self.set is None else f"{self.set}/{self.key}"


def select_columns(
    dataset: Dataset,
    columns: Sequence[str] | str | None,
    attributes: Sequence[str] | str,
    *,
    prefix: bool = False,
    short: bool = False,
    spans: bool = False,
) -> tuple[tuple[FrameColumn, ...], AttributeSets | None]:
    """Return the requested columns, those named first, then the other keys of the attribute sets, and the sets that they are read from."""
    names = words_of("columns", DEFAULT if columns is None else columns)
    selected = _sets_of(dataset, attributes)
    catalog = Catalog(dataset)
    given = catalog.open(selected) if selected else None
    if given is not None:
        check_keyless(dataset, given)
    metrics = find_metrics(catalog, names)
    addresses: list[_Address] = [
        (None, name) if name in metrics else _address(catalog, name, selected) for name in names
    ]
    _check_unique(
        [(name, "/".join(filter(None, address))) for name, address in zip(names, addresses, strict=True)]
    )
    if given is not None:
        addresses += [
            (name, key)
            for name in selected
            for key in sorted(given.kinds[name])
            if (name, key) not in addresses
        ]
    if not addresses:
        raise UsageError(
            "no columns and no attributes are requested; expected one or more, such as columns=['id'] or attributes=['gopher_v2']."
        )
    parts = {
        metric: [_address(catalog, name, selected) for name in sorted(value.names)]
        for metric, value in metrics.items()
    }
    read = [*addresses, *(address for own in parts.values() for address in own)]
    used = tuple(dict.fromkeys(name for name, _ in read if name is not None))
    sets = given if used == selected else catalog.open(used)
    fields = find_fields(
        dataset, list(dict.fromkeys(key for name, key in read if name is None and is_field(key)))
    )
    name_of = partial(_name, prefix=prefix, short=short)
    result = []
    for address in addresses:
        column = _column(address, fields, sets, name_of, spans=spans)
        if column.set is None and column.key in metrics:
            made_of = tuple(_column(part, fields, sets, name_of, spans=False) for part in parts[column.key])
            value = metrics[column.key].value.renamed({part.key: part.path for part in made_of})
            column = replace(column, kind="number", value=value, made_of=made_of)
        result.append(column)
    _check_names(result)
    return tuple(result), sets


_Address = tuple[str | None, str]


def words_of(name: str, value: Sequence[str] | str) -> tuple[str, ...]:
    """Return a list of words as a tuple, a word as one of itself; raise `UsageError` for anything else."""
    words = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else ()
    if not isinstance(value, Iterable) or not all(isinstance(word, str) and word for word in words):
        raise UsageError(f"{name}={value!r}; expected names, such as {name}=['a', 'b'].")
    return words


def _sets_of(dataset: Dataset, attributes: Sequence[str] | str) -> tuple[str, ...]:
    """Return the names of the requested attribute sets; whether they exist, the catalog says."""
    if isinstance(attributes, str) and attributes == ALL:
        return dataset.with_current_attributes().attributes
    names = words_of("attributes", attributes)
    _check_unique([(name, name) for name in names])
    return names


def _check_unique(requested: Sequence[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for name, address in requested:
        if address in seen:
            also = f" (also as {seen[address]!r})" if seen[address] != name else ""
            raise UsageError(f"{name!r} is requested twice{also}; expected each once.", name=name)
        seen[address] = name


def _address(catalog: Catalog, name: str, selected: Sequence[str]) -> _Address:
    """Return the attribute set and key of a column, or None and the field of documents."""
    if name in (*STRINGS, METADATA) or is_field(name):
        return None, name
    known = frozenset(columns_of({each: catalog.kinds(each).keys() for each in selected}))
    full, sets = find_keys(catalog, [name], selected if endings(name, known) else ())
    return sets.columns[full[name]]


def _name(folder: str, key: str, prefix: bool, short: bool) -> str:
    """Return the name of the column of an attribute."""
    name = key.rpartition("__")[2] if short else key
    return f"{folder}/{name}" if prefix else name


def _column(
    address: _Address,
    fields: Mapping[str, Kind],
    sets: AttributeSets | None,
    name_of: Callable[[str, str], str],
    *,
    spans: bool,
) -> FrameColumn:
    name, key = address
    if name is None or sets is None:
        return FrameColumn(key, fields.get(key, "text"), None, key)
    kind: Kind = sets.kinds[name][key]
    if spans and kind == "document":
        _check_has_spans(sets, name, key)
        kind = "spans"
    return FrameColumn(name_of(name, key), kind, name, key)


def _check_has_spans(sets: AttributeSets, name: str, key: str) -> None:
    for info in sets.files[name].values():
        if format_of(info.path) == "parquet":
            raise UsageError(
                f"{info.path} holds {key!r} as one number per document, without a span; expected spans=False for attributes in Parquet. "
                "Read these columns on their own, or make the attributes again as JSON lines.",
                name=key,
            )


def _check_names(columns: Sequence[FrameColumn]) -> None:
    """Refuse two columns of one name."""
    seen: dict[str, FrameColumn] = {}
    for column in columns:
        first = seen.setdefault(column.name, column)
        if first is column:
            continue
        addresses = [
            "the documents" if one.set is None else f"attribute set {one.set}" for one in (first, column)
        ]
        if first.key != column.key:
            raise UsageError(
                f"{column.name!r} is short for {first.key!r} of {addresses[0]} and for {column.key!r} of {addresses[1]}; expected one. "
                "Leave one of them out, or name the columns in full: short=False.",
                name=column.name,
            )
        raise UsageError(
            f"key {column.name!r} stands in {addresses[0]} and in {addresses[1]}; expected one. Choose the sets to read, or have their "
            f"columns named <set>/<key>: prefix=True.",
            name=column.name,
        )


def check_keyless(dataset: Dataset, sets: AttributeSets) -> None:
    """Refuse files without rows beside documents, in sets that have no key in any file."""
    for name in [name for name, kinds in sets.kinds.items() if not kinds]:
        for shard in dataset.shards:
            (source,) = [source for source in sets.sources(shard, ()) if source.name == name]
            if _is_empty(dataset.url(source.info.path), dataset.ids_as_text):
                alone = AlignedShard(dataset.root, shard, sources=(source,), default_source=dataset.source)
                alone.open().read_all()  # raises at the first row of the documents


def _is_empty(url: str, ids_as_text: bool) -> bool:
    with closing(iter(AttributeFile(url, {}, ids_as_text=ids_as_text))) as blocks:
        return not any(len(block.ids) for block in blocks)
