"""list: the taggers, built in and from plug-ins, or the attributes of one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.errors import UsageError
from dolma_dask.functions.places import is_place
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Part, Sentences
from dolma_dask.results.table import Column, Table
from dolma_dask.taggers.registry import describe, get_tagger, list_taggers

KINDS = {"document": "number", "spans": "spans", "scalar": "value", "dict": "numbers by name"}
"""Kinds of attributes as people call them."""


@dataclass(frozen=True)
class AttributeRow:
    """One attribute that a tagger makes of each document."""

    name: str
    type: str
    meaning: str  # empty if the tagger does not say


@dataclass(frozen=True)
class TaggerRow:
    """One tagger as it is listed."""

    name: str
    version: str
    reads: tuple[str, ...]  # document columns that it takes
    origin: str  # where it comes from: built in, or a plug-in's name
    description: str
    attributes: tuple[AttributeRow, ...] = ()


class TaggerTable(Answer, frozen=True):
    """Taggers; prints as a table."""

    taggers: tuple[TaggerRow, ...]

    def parts(self) -> Iterator[Part]:
        columns = [Column(name, "words") for name in ("name", "version", "reads", "from", "what")]
        rows = [
            (row.name, row.version, ", ".join(row.reads), row.origin, row.description) for row in self.taggers
        ]
        yield Table("", columns, rows, max_rows=len(rows))


class AttributeTable(TaggerTable, frozen=True):
    """One tagger; prints as the table of its attributes."""

    def parts(self) -> Iterator[Part]:
        columns = [Column(name, "words") for name in ("attribute", "type", "what")]
        for row in self.taggers:
            attributes = [(one.name, one.type, one.meaning) for one in row.attributes]
            yield Heading(f"{row.name}, version {row.version}, from {row.origin}: {row.description}")
            yield Sentences(
                [
                    f"Reads {', '.join(row.reads)}. Keys: SET__{row.name}__ATTRIBUTE, with SET {row.name} or that of --experiment; rules take ATTRIBUTE alone."
                ]
            )
            yield Table("attributes", columns, attributes, max_rows=len(attributes))


def _check(tagger: str) -> None:
    """Refuse an unknown name."""
    try:
        get_tagger(tagger)
    except UsageError as error:
        if tagger not in ("exact", "fuzzy"):
            raise
        raise UsageError(
            f"{tagger!r} is no tagger: dedupe makes these attributes. What they are says dolma-dask dedupe --help"
        ) from error


@command
def show_taggers(
    tagger: Annotated[
        str | None,
        Opt("Name of a tagger, or the place of yours, file.py:name; by default all are listed."),
    ] = None,
    /,
) -> TaggerTable:
    """List the taggers, built in and from plug-ins, or the attributes of one: name, type, what it is.

    Example: dolma-dask list gopher_v2

    Returns
    -------
    TaggerTable
    """
    if tagger is not None:
        _check(tagger)
    listed = [describe(get_tagger(tagger), tagger)] if tagger and is_place(tagger) else list_taggers()
    rows = tuple(
        TaggerRow(
            item.name,
            str(item.version),
            tuple(item.reads),
            item.origin,
            item.description,
            tuple(
                AttributeRow(name, KINDS[kind], item.meanings.get(name, ""))
                for name, kind in item.types.items()
            ),
        )
        for item in listed
        if tagger in (None, item.name, item.origin) and not (tagger and item.error)
    )
    return TaggerTable(rows) if tagger is None else AttributeTable(rows)
