"""Columns that `quantiles` reads, by name: signals, those of the groups, and those that decide which documents are looked at."""

from collections.abc import Sequence

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.options.base import words_of
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.columns import NUMERIC, Columns, find_columns, label_kind
from dolma_dask.reading.selection import select
from dolma_dask.reading.sets import flag_key
from dolma_dask.rules.labels import BETWEEN, Labels
from dolma_dask.rules.rules import Missing, Rule, all_of
from dolma_dask.rules.thresholds import By
from dolma_dask.rules.values import Name, once_each
from dolma_dask.rules.where import parse

NO_GROUPS = "none"
"""by=None on the command line."""


def find_rule(
    dataset: Dataset, over: str, where: str | Rule | None, sets: tuple[str, ...]
) -> tuple[Rule | None, tuple[str, ...]]:
    """Return the rule which documents are looked at, over full names, and the attribute sets to look in for all names."""
    rules = [] if where is None else [parse(where) if isinstance(where, str) else where]
    if over == "kept":
        flags = _sets_of_duplicates(dataset)
        rules += [Missing(Name(name if name == key else f"{name}/{key}")) for name, key in flags.items()]
        sets = (*sets, *(name for name in flags if name not in sets)) if sets else ()
    return select(dataset, all_of(*rules), sets).rule if rules else None, sets


def _sets_of_duplicates(dataset: Dataset) -> dict[str, str]:
    """Return the sets of duplicates, and the key of the flags of each."""
    catalog = Catalog(dataset)
    made = [name for name in dataset.attributes if catalog.makers.get(name) in ("dedupe", "attach")]
    keys = {name: flag_key(name, catalog.keys(name)[0], catalog.makers[name]) for name in made}
    if found := {name: key for name, key in keys.items() if key}:
        return found
    raise UsageError(
        f"{dataset.root} has no set of duplicates, and over='kept' is about documents that none flags; expected one or more. Make it: dolma-dask dedupe, or "
        "dolma-dask attach for published ones."
    )


def find_signals(
    dataset: Dataset,
    signals: Sequence[str] | str | None,
    by: Sequence[str] | str | None,
    sets: tuple[str, ...],
    rule: Rule | None,
    sampled: bool,
) -> tuple[Columns, tuple[str, ...], By]:
    """Return the columns to read, the full names of the signals, and those of the columns of the groups."""
    group = () if by in (None, NO_GROUPS, [NO_GROUPS], (NO_GROUPS,)) else words_of("by", by or "")
    if signals is None or signals == ():
        requested = _all_signals(dataset, sets)
        group = find_columns(dataset, group, sets).names  # in full: it may be one of them
    else:
        requested = words_of("signals", signals)
    _check_once("a signal", requested)
    _check_once("a column of `by`", group)
    names = list(dict.fromkeys([*requested, *group, *(("source", "id") if sampled else ())]))
    columns = find_columns(dataset, names, sets)
    full = dict(zip(names, columns.names, strict=True))
    for name in requested:
        check_signal(columns, full[name])
    for name in group:
        _check_label(columns, full[name])
    columns, groups = _grouped(columns.with_rule(rule, sets), tuple(full[name] for name in group))
    return columns, tuple(full[name] for name in requested), groups


def _check_once(what: str, words: Sequence[str]) -> None:
    if len(set(words)) < len(words):
        raise UsageError(f"{what} was given twice in {list(words)}; expected each once.")


def _grouped(columns: Columns, by: tuple[str, ...]) -> tuple[Columns, By]:
    """Return columns with the labels of groups by several."""
    if len(by) < 2:
        return columns, by[0] if by else None
    labels = Labels(tuple(map(Name, by)), tuple(label_kind(columns.kinds[name]) for name in by))
    return columns.with_computed(BETWEEN.join(by), labels), by


def _all_signals(dataset: Dataset, sets: Sequence[str]) -> tuple[str, ...]:
    """Return every attribute key with a number per document."""
    names = tuple(sets) or dataset.attributes
    if not names:
        raise UsageError(
            f"{dataset.root} has no attributes, so there are no signals. Make them: dolma-dask tag; or name fields: --signals metadata.<field>."
        )
    opened = Catalog(dataset).open(names)
    found = tuple(name for name in once_each(opened.columns) if opened.kind(name) in NUMERIC)
    if not found:
        raise UsageError(
            f"no key of the attribute sets {', '.join(names)} has one number per document; expected one or more. Tag with others: dolma-dask tag."
        )
    return found


def check_signal(columns: Columns, name: str) -> None:
    """Refuse a column that has no number per document."""
    kind = columns.kinds[name]
    if kind in (*NUMERIC, "level"):
        return
    what = {"spans": "has many spans per document", "bool": "is true or false"}.get(kind, "holds strings")
    hint = (
        " Tag with a tagger that gives one number per document."
        if kind == "spans"
        else " To make groups of it: by=..."
    )
    raise UsageError(f"signal {name!r} {what}; expected one number per document.{hint}", name=name)


def _check_label(columns: Columns, name: str) -> None:
    """Refuse a column that has many values per document."""
    if columns.kinds[name] == "spans":
        raise UsageError(
            f"by={name!r} has many spans per document; expected one value per document, such as source.",
            name=name,
        )
