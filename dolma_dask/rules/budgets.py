"""Budgets: shares of a total for each group, in whole documents; a group that has too little is taken several times.

A group that is to have more than there is of it is taken whole, as often as that goes, and then once more from its beginning by the hash of
`dolma_dask.rules.downsampling`. So a larger budget holds the documents of a smaller one, and each group has what was wanted, to within one document.
Arithmetic is in fractions: numbers of tokens are exact, whatever their size. `dolma_dask.rules.budget_words` reads what people write.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from msgspec import Struct

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.rules.downsampling import Downsampling, Take

TOKEN_COUNT = "tokens__count"
"""End of the key of the tagger `tokens`: a budget counts by it unless another column is named."""

Amounts = Mapping[str, int]
"""Tokens by group."""

Shares = Mapping[str, Fraction]
"""Shares of groups, 1 in all."""


MAX_EPOCHS = 10_000
"""Times that a document is taken at most: all its copies are rows of one block."""


class Budget(Struct, frozen=True):
    """Tokens, or whatever `unit` counts, that are wanted of each group."""

    shares: Shares  # by label; empty: each group has its share of what there is
    total: int | None  # None: as much as there is
    max_epochs: int  # times that a document is taken at most
    by: str  # column of the groups
    unit: str
    seed: int = 0
    given: Mapping[str, str] = {}  # what was wanted of each group, in words
    is_trial: bool = False  # of some shards alone: where there is too little of a group, the total is less

    def takes(self, totals: Amounts) -> dict[str, Take]:
        """Return what of each group is taken, given all that there is of it.

        Raises `UsageError`: there is no such group, nothing of it, or too little.
        """
        shares, limits = self._shares_of(totals), self._limits(totals)
        largest = _largest(shares, limits)
        total = largest if self.total is None or (self.is_trial and self.total > largest) else self.total
        if total > largest:
            raise UsageError("\n".join(self._too_little(total, shares, totals)))
        wanted = _amounts(total, shares)
        return {label: _take(wanted.get(label, 0), there) for label, there in totals.items()}

    def params(self) -> dict[str, Any]:
        """Return what was requested."""
        return {
            **({"budget": dict(sorted(self.given.items()))} if self.given else {}),
            **({} if self.total is None or self._is_of_numbers else {"tokens": self.total}),
            "max_epochs": self.max_epochs,
            "by": self.by,
            "unit": self.unit,
            "seed": self.seed,
            **({"trial": True} if self.is_trial else {}),
        }

    @property
    def named(self) -> tuple[str, ...]:
        """Labels of the groups that were named."""
        return tuple(self.shares)

    @property
    def _is_of_numbers(self) -> bool:
        """True if numbers were given for groups, and the total is their sum."""
        return any(not words.endswith("%") for words in self.given.values())

    def _limits(self, totals: Amounts) -> dict[str, int]:
        return {label: self.max_epochs * there for label, there in totals.items()}

    def _shares_of(self, totals: Amounts) -> Shares:
        """Return the shares of all groups of which something is wanted."""
        there = sum(totals.values())
        if not there:
            raise UsageError(
                f"budget: the documents that the mix keeps have no {unit_name(self.unit)}; expected some. Look at the rule, and at what counts them."
            )
        if not self.shares:
            return {label: Fraction(total, there) for label, total in totals.items() if total}
        shares = {label: share for label, share in self.shares.items() if share}
        if self.is_trial:
            shares = {label: share for label, share in shares.items() if totals.get(label)} or shares
            shares = {label: share / sum(shares.values()) for label, share in shares.items()}
        for label in shares:
            self._check_there(label, totals)
        return shares

    def _check_there(self, label: str, totals: Amounts) -> None:
        if label not in totals:
            raise UsageError(
                f"budget: no document that the mix keeps has {self.by} {label!r}; {near_or_all(label, sorted(totals))}"
            )
        if not totals[label]:
            raise UsageError(
                f"budget: the documents with {self.by} {label!r} that the mix keeps have no {unit_name(self.unit)}; expected some, or no share of it."
            )

    def _too_little(self, total: int, shares: Shares, totals: Amounts) -> Iterator[str]:
        """Yield the lines of a message about what cannot be had, and what can that is nearest to it."""
        wanted, limits = _amounts(total, shares), self._limits(totals)
        times = "once" if self.max_epochs == 1 else f"{self.max_epochs:,} times"
        yield (
            f"budget: {total:,} {unit_name(self.unit)} cannot be had with these shares, if each document is taken {times} at most:"
        )
        yield from _table(self.by, ("wanted", "there", f"at most, {times}"), (wanted, totals, limits))
        largest = _largest(shares, limits)
        same = _amounts(largest, shares)
        words = _words(same) if self._is_of_numbers else f"--tokens {largest}"
        parts = ", ".join(f"{_name(label)} {amount:,}" for label, amount in same.items())
        yield f"The same shares give {largest:,} at most: {words} ({parts})"
        most = min(sum(limits[label] for label in shares), total)
        other = _spread(most, shares, limits)
        parts = ", ".join(f"{_name(label)} {100 * amount / most:.4g} %" for label, amount in other.items())
        all_of_it = "Other shares give all of it" if most == total else f"No shares give more than {most:,}"
        yield f"{all_of_it}: {_words(other)} ({parts})"
        needed = max(ceil(total * share / totals[label]) for label, share in shares.items())
        if needed <= MAX_EPOCHS:
            yield f"Or take documents more often: --max-epochs {needed}"


Wanted = Downsampling | Budget
"""What is to be kept of each group."""


def unit_name(unit: str) -> str:
    """Return what is counted, as people call it."""
    return "tokens" if f"__{unit}".endswith(f"__{TOKEN_COUNT}") else unit


# ------------------------------------------------------------------------------------------------ amounts


def _take(wanted: int, there: int) -> Take:
    """Return a number of tokens of a group as epochs, of which the last may be a part."""
    if not wanted:
        return Take(0, 0, 0, is_left_out=True)
    whole, rest = divmod(wanted, there)
    return Take(wanted, whole, rest) if rest else Take(wanted, whole - 1, None)


def _amounts(total: int, shares: Shares) -> dict[str, int]:
    return {label: int(total * share) for label, share in shares.items()}


def _largest(shares: Shares, limits: Amounts) -> int:
    """Return the largest total of which no share exceeds the limit of its group."""
    return int(min(limits[label] / share for label, share in shares.items()))


def _spread(total: int, shares: Shares, limits: Amounts) -> dict[str, int]:
    """Return amounts that add up to a total, in these shares but for the groups that have their limit."""
    full: dict[str, int] = {}
    while True:
        left, open_shares = total - sum(full.values()), {k: v for k, v in shares.items() if k not in full}
        parts = {label: left * share / sum(open_shares.values()) for label, share in open_shares.items()}
        over = {label: limits[label] for label, part in parts.items() if part > limits[label]}
        if not over:
            break
        full |= over
    amounts = {label: full[label] if label in full else int(parts[label]) for label in shares}
    for label in shares:  # what rounding has left
        amounts[label] += min(total - sum(amounts.values()), limits[label] - amounts[label])
    return amounts


# ------------------------------------------------------------------------------------------------ words of messages


def _name(label: str) -> str:
    return label or "(none)"


def _words(amounts: Amounts) -> str:
    """Write amounts as the budget that gives them, for a shell."""
    words = " ".join(f"{label}={amount}" for label, amount in amounts.items())
    return f"--budget {shlex.quote(words)}" if set(words) & set('"$`\\!') else f'--budget "{words}"'


def _table(by: str, headings: Sequence[str], columns: Sequence[Amounts]) -> Iterator[str]:
    """Yield the lines of a table of the groups of the first column, with numbers on the right."""
    rows = [[_name(label), *(f"{own[label]:,}" for own in columns)] for label in columns[0]]
    rows.insert(0, [by, *headings])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for first, *others in rows:
        numbers = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join(["", first.ljust(widths[0]), *numbers])
