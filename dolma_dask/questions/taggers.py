"""list: the taggers, built in and from plug-ins, or the attributes of one; of a tokenizer, the answer of show-tokenizer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, cast

from dolma_dask.display import shortened
from dolma_dask.errors import UsageError
from dolma_dask.functions.places import is_place
from dolma_dask.io.hub import model_of
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.taggers import ModuleOptions
from dolma_dask.registry import COMMANDS
from dolma_dask.results.answer import Answer, table_lines, terminal_text
from dolma_dask.results.parts import Heading, Part, Sentences
from dolma_dask.results.table import Column, Table
from dolma_dask.taggers.registry import (
    TaggerInfo,
    describe,
    get_tagger,
    list_taggers,
    speeds,
)

KINDS = {
    "document": "number",
    "spans": "spans",
    "scalar": "value",
    "dict": "numbers by name",
    "labels": "a key for each label",
}
"""Kinds of attributes as people call them."""


_SCORED = {"any_paragraph": "paragraphs, blank ones too"}
"""Units whose name does not say what is scored."""

WIDTH = 100
"""Columns of a terminal that lines fit into."""

SHOW_TOKENIZER = "show-tokenizer"
"""The question that answers for tokenizers."""

MORE = "What one needs and writes: dolma-dask list NAME"


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
    family: str = ""  # of those built in
    units: tuple[str, ...] = ("document",)  # what is scored
    needs: tuple[str, ...] = ()  # besides the text: packages, files of the user's, metadata
    mb_per_cpu_second: float | None = None  # of text; measured alone on the reference corpus
    files: tuple[str, ...] = ()  # that it uses, in the folder of --artifacts
    source: str = ""  # where to get these, if it needs them
    differs: str = ""  # from the published tagger of its name


class TaggerTable(Answer, frozen=True):
    """Taggers; prints as a table."""

    taggers: tuple[TaggerRow, ...]

    def parts(self) -> Iterator[Part]:
        names = ("name", "family", "unit", "attributes", "needs", "MB/CPU-s", "what")
        columns = [Column(name, "real" if name == "MB/CPU-s" else "words") for name in names]
        rows = [
            (
                row.name,
                row.family or row.origin,
                ", ".join(row.units),
                _short([one.name for one in row.attributes]),
                ", ".join(row.needs),
                row.mb_per_cpu_second,
                row.description,
            )
            for row in self.taggers
        ]
        yield Table("", columns, rows, max_rows=len(rows))

    def __str__(self) -> str:
        """Return a line for each that fits the terminal, or one of `WIDTH` columns: name, speed, and the beginning of what it is."""
        width = max(WIDTH, get_terminal_size((WIDTH, 0)).columns)
        columns = [Column("name", "words"), Column("MB/CPU-s", "real"), Column("what", "words")]
        rows = [(row.name, row.mb_per_cpu_second, row.description) for row in self.taggers]
        lines = table_lines(Table("", columns, rows, max_rows=len(rows)))
        return "\n".join([*(shortened(line, width) for line in lines), "", MORE])


def _short(names: Sequence[str]) -> str:
    """Return a few names, or how many there are."""
    return ", ".join(names) if len(names) < 4 else f"{len(names)} attributes"


class AttributeTable(TaggerTable, frozen=True):
    """One tagger; prints as the table of its attributes."""

    def __str__(self) -> str:
        return terminal_text(self.parts())

    def parts(self) -> Iterator[Part]:
        columns = [Column(name, "words") for name in ("attribute", "type", "what")]
        for row in self.taggers:
            attributes = [(one.name, one.type, one.meaning) for one in row.attributes]
            yield Heading(f"{row.name}, version {row.version}, from {row.origin}: {row.description}")
            yield Sentences(
                [
                    _measured(row),
                    f"Reads {', '.join(row.reads)}. Keys: SET__{row.name}__{_last(row)}, with SET {row.name} or that of --experiment; rules take {_last(row)} alone.",
                    *([f"Needs {', '.join(row.needs)}."] if row.needs else []),
                    *(
                        [f"Files that it uses, in the folder of --artifacts: {', '.join(row.files)}."]
                        if row.files
                        else []
                    ),
                    *([f"Where to get it: {row.source}"] if row.source else []),
                    *([f"Other than in the Dolma toolkit: {row.differs}"] if row.differs else []),
                ]
            )
            yield Table("attributes", columns, attributes, max_rows=len(attributes))


def _measured(row: TaggerRow) -> str:
    """Say what is scored, the family, and how fast, as far as they are known."""
    family = f"Family {row.family}; scores" if row.family else "Scores"
    scored = " and ".join(_SCORED.get(unit, f"{unit}s") for unit in row.units)
    speed = "" if row.mb_per_cpu_second is None else f"; {row.mb_per_cpu_second:g} MB of text per CPU-second"
    return f"{family} {scored}{speed}."


def _last(row: TaggerRow) -> str:
    """Return what stands last in the keys of a tagger."""
    kinds = [one.type == KINDS["labels"] for one in row.attributes]
    return "LABEL" if all(kinds) else "ATTRIBUTE or LABEL" if any(kinds) else "ATTRIBUTE"


def _needs(info: TaggerInfo) -> tuple[str, ...]:
    packages = [f"package {info.extra}"] if info.extra else []
    files = [" or ".join(info.files) or info.option or "what cannot be had"] if info.source else []
    return (*packages, *files, *(name for name in info.reads if name == "metadata"))


def _check(tagger: str) -> None:
    """Refuse an unknown name."""
    try:
        get_tagger(tagger)
    except UsageError as error:
        if tagger in ("exact", "fuzzy"):
            raise UsageError(
                f"{tagger!r} is no tagger: dedupe makes these attributes. See dolma-dask dedupe --help"
            ) from error
        if not is_place(tagger) and model_of(
            tagger
        ):  # a word is not asked for on the hub unless that is meant
            raise UsageError(
                f"{error} For a tokenizer on the hub: dolma-dask {SHOW_TOKENIZER} {tagger}", **error.details
            ) from None
        raise


def _is_tokenizer(name: str) -> bool:
    """Tell whether a name is a file or folder of a tokenizer, or ORG/MODEL on the hub; a tagger of that name comes first."""
    if is_place(name):
        return False
    if "/" in name or name.endswith(".json"):  # no tagger is called so
        return True
    if not Path(name).exists():
        return False
    from dolma_dask.io.tokenizer import find_tokenizer  # a list of taggers needs none

    try:
        get_tagger(name)
    except UsageError:
        return find_tokenizer(name) is not None
    return False


@dataclass(frozen=True, kw_only=True)
class ListOptions(ModuleOptions):
    """Options of `show_taggers`."""


@command
def show_taggers(
    tagger: Annotated[
        str | None,
        Opt(
            "Name of a tagger, or the place of yours, file.py:name; by default all are listed. A tokenizer.json, a folder that has one or ORG/MODEL on the hub is shown as by show-tokenizer."
        ),
    ] = None,
    /,
    *,
    options: ListOptions,
) -> Answer:
    """List the taggers, built in and from plug-ins, or the attributes of one: name, type, what it is. Or tell what a tokenizer is.

    Example: dolma-dask list gopher_v2

    Returns
    -------
    TaggerTable or TokenizerAnswer
    """
    if tagger is not None and _is_tokenizer(tagger):
        return cast(Answer, COMMANDS[SHOW_TOKENIZER].load()(tagger))
    options.register_modules()
    if tagger is not None:
        _check(tagger)
    listed = [describe(get_tagger(tagger), tagger)] if tagger and is_place(tagger) else list_taggers()
    rows = tuple(
        TaggerRow(
            item.name,
            str(item.version),
            tuple(item.reads),
            item.origin,
            item.description or item.error or "",
            tuple(
                AttributeRow(name, KINDS[kind], item.meanings.get(name, ""))
                for name, kind in item.types.items()
            ),
            item.family,
            item.units,
            _needs(item),
            speeds().get(item.name),
            tuple(item.files),
            item.source,
            item.differs,
        )
        for item in listed
        if tagger in (None, item.name, item.origin) and not (tagger and item.error)
    )
    return TaggerTable(rows) if tagger is None else AttributeTable(rows)
