"""Options for the documents of a dataset that a rule keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.errors import UsageError
from dolma_dask.options.base import OWN, WHAT, Opt, Options
from dolma_dask.options.groups import DatasetOptions
from dolma_dask.rules.rules import Rule

RuleLike = str | Rule | None
"""An expression, or rules joined by ``& | ~``."""


def rule_of(where: object) -> str | Rule | None:
    """Return a rule as verbs take it: an expression, a rule, or of thresholds and summaries with thresholds the rule to be inside of them.

    Raises `UsageError`: it is of another type.
    """
    inside = getattr(where, "inside", None)
    rule = inside() if callable(inside) else where
    if isinstance(rule, Rule):
        rule.check_depth()
    if rule is None or isinstance(rule, str | Rule):
        return rule
    raise UsageError(
        f"where={where!r} is of type {type(where).__name__}; expected an expression such as 'word_count >= 50', or rules "
        "joined by & | ~."
    )


@dataclass(frozen=True, kw_only=True)
class ListedOptions(Options):
    """What a list of ids may be."""

    unrecorded = frozenset({"allow_unmatched"})

    allow_unmatched: Annotated[
        bool,
        Opt(
            "Take a list of which no document has an entry, or that is empty. Otherwise that is an error, since such a list is mostly another one than "
            "was meant, or has its ids in another form than the documents.",
            is_flag=True,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class KeptOptions(DatasetOptions):
    """The documents of a dataset that a rule keeps."""

    group = WHAT

    where: Annotated[
        RuleLike,
        Opt(
            "Keep only documents for which this holds, as in mix, without writing them first.",
            kind="str",
            group=OWN,
            convert=rule_of,
        ),
    ] = None
    attributes: Annotated[
        Sequence[str], Opt("Attribute sets to read; by default those that the rule needs.")
    ] = ()
