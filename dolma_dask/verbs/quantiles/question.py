"""What quantiles are wanted of: which columns are signals, which one makes the groups, and what of them decides the result."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.reading import Catalog, Columns, find_columns
from dolma_dask.rules.groups import LabelKind
from dolma_dask.verbs.options import words_of

NUMERIC = ("document", "number", "dict")
"""Kinds of columns with one number per document."""

NO_GROUPS = "none"
"""How the command line says by=None."""


@dataclass(frozen=True)
class Question:
    """What quantiles are wanted of.

    Attributes
    ----------
    columns : Columns
        All that is read.
    signals : tuple of str
        Full names.
    by : str or None
        Full name of the column of the groups.
    probabilities : tuple of float
        Ascending.
    sample : float or None
        Fraction of the documents; None: all.
    seed : int
        Of the sample.
    """

    columns: Columns
    signals: tuple[str, ...]
    by: str | None
    probabilities: tuple[float, ...]
    sample: float | None = None
    seed: int = 0

    @property
    def kind(self) -> LabelKind:
        """Type of the labels."""
        kind = self.columns.kinds[self.by] if self.by is not None else "text"
        if kind in NUMERIC:
            return "number"
        return "bool" if kind == "bool" else "string"

    def params(self) -> dict[str, Any]:
        """Return what decides the result besides the files."""
        drawn = {"sample": self.sample, "seed": self.seed} if self.sample is not None else {}
        return {
            **self.columns.params(),
            "signals": list(self.signals),
            "by": self.by,
            "probabilities": list(self.probabilities),
            **drawn,
        }


def choose_columns(
    dataset: Dataset,
    signals: Sequence[str] | str | None,
    by: str | None,
    attributes: Sequence[str] | str,
    sampled: bool,
) -> tuple[Columns, tuple[str, ...], str | None]:
    """Return the columns to read, the full names of the signals, and that of the column of the groups."""
    sets = words_of("attributes", attributes)
    group = () if by is None or by == NO_GROUPS else words_of("by", by)
    if signals is None or signals == ():
        asked = _all_signals(dataset, sets)
        group = find_columns(dataset, group, sets).names  # in full: it may be one of them
    else:
        asked = words_of("signals", signals)
    beside = ("source", "id") if sampled else ()
    wanted = list(dict.fromkeys([*asked, *group, *beside]))
    columns = find_columns(dataset, wanted, sets)
    full = dict(zip(wanted, columns.names, strict=True))
    if len(set(asked)) < len(asked):
        raise UsageError(f"a signal was given twice in {list(asked)}; expected each once.")
    for name in asked:
        check_signal(columns, full[name])
    for name in group:
        check_label(columns, full[name])
    return columns, tuple(full[name] for name in asked), full[group[0]] if group else None


def _all_signals(dataset: Dataset, sets: Sequence[str]) -> tuple[str, ...]:
    """Return every attribute key with a number per document."""
    names = tuple(sets) or dataset.attributes
    if not names:
        raise UsageError(
            f"{dataset.root} has no attributes, so there are no signals. Make them: dolma-dask tag; or name fields: --signals metadata.<field>."
        )
    kinds = Catalog(dataset).open(names).kinds
    found = tuple(key for keys in kinds.values() for key, kind in keys.items() if kind in NUMERIC)
    if not found:
        raise UsageError(
            f"no key of the attribute sets {', '.join(names)} has one number per document; expected one or more. Tag with others: dolma-dask tag."
        )
    return found


def check_signal(columns: Columns, name: str) -> None:
    """Refuse a column that has no number per document.

    Raises
    ------
    UsageError
        It holds strings, bools, or many spans per document.
    """
    kind = columns.kinds[name]
    if kind in NUMERIC:
        return
    what = {"spans": "has many spans per document", "bool": "is true or false"}.get(kind, "holds strings")
    hint = (
        " Tag with a tagger that gives one number per document."
        if kind == "spans"
        else " To make groups of it: by=..."
    )
    raise UsageError(f"signal {name!r} {what}; expected one number per document.{hint}", name=name)


def check_label(columns: Columns, name: str) -> None:
    """Refuse a column that has many values per document; raise `UsageError`."""
    if columns.kinds[name] == "spans":
        raise UsageError(
            f"by={name!r} has many spans per document; expected one value per document, such as source.",
            name=name,
        )
