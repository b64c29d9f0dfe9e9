"""Downsampling: keep the first documents of each group by a seeded hash, until a number of documents, bytes or tokens is reached.

Documents are ranked by the hash of `dolma_dask.rules.sampling`, equal ones in the order of the dataset. Kept is the longest beginning of the
ranking that does not exceed the number, documents whole. So the smaller of two samples is a part of the larger, and all that a worker has to
know is the first document of each group that is left out, its `Cut`. Cost: a hash and a look-up per document.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.rules.groups import ALL, label_of, places_of
from dolma_dask.rules.sampling import document_hashes

Amount = int | float
"""A number of documents, bytes or tokens; a float is a share of what there is, from 0 to 1."""

NO_LABEL = ""
"""Group of the documents without a value in the column of the groups."""

_EXPECTED = (
    "a number of documents, bytes or tokens (1000), a share (0.3), or one for each group (en=1000 de=0.3)"
)


class Take(NamedTuple):
    """What of a group is taken: all of it several times, and then its beginning."""

    wanted: int | None  # in all; None: whatever there is
    epochs: int  # times that all of it is taken
    rest: int | None  # what is taken once more exceeds this by no document; None: all of it
    is_left_out: bool = False  # nothing is taken, not even documents that weigh nothing


class Downsampling(Struct, frozen=True):
    """Amount of each group that is kept."""

    amounts: Amount | Mapping[str, Amount]  # of every group, or of some by label: the others are kept whole
    by: str | None = None  # column of the groups; None: all documents are one
    unit: str = "documents"  # also "bytes", "tokens", or a column of numbers
    seed: int = 0

    def wanted(self, group: str, total: int) -> int | None:
        """Return how much of a group with a `total` is kept at most; None: all of it."""
        amount = self.amounts.get(group) if isinstance(self.amounts, Mapping) else self.amounts
        if isinstance(amount, float):  # as it is spelled: 0.29 of 100 is 29
            return int(Fraction(repr(amount)) * total)
        return amount

    def takes(self, totals: Mapping[str, int]) -> dict[str, Take]:
        """Return what of each group is taken, given all that there is of it."""
        wanted = {label: self.wanted(label, total) for label, total in totals.items()}
        return {label: Take(amount, 0, amount) for label, amount in wanted.items()}

    @property
    def named(self) -> tuple[str, ...]:
        """Labels of the groups that were named."""
        return tuple(self.amounts) if isinstance(self.amounts, Mapping) else ()

    def params(self) -> dict[str, Any]:
        """Return what was requested."""
        amounts = dict(sorted(self.amounts.items())) if isinstance(self.amounts, Mapping) else self.amounts
        by = {} if self.by is None else {"by": self.by}
        return {"downsample": amounts, **by, "unit": self.unit, "seed": self.seed}


def downsampling(
    given: Amount | Mapping[str, Amount] | Sequence[str], by: str | None, unit: str, seed: int
) -> Downsampling:
    """Check what was requested, in numbers or in words such as ``1000``, ``0.3`` or ``en=1000``; raise `UsageError` for anything else."""
    amounts = read_amounts(given)
    if by is None and isinstance(amounts, Mapping):
        raise UsageError(
            f"downsample names the groups {', '.join(map(repr, amounts))}, and no column has them; expected `by`, such as by=metadata.language."
        )
    return Downsampling(amounts, by, unit, seed)


def read_amounts(given: Amount | Mapping[str, Amount] | Sequence[str]) -> Amount | Mapping[str, Amount]:
    """Return how much to keep, from numbers or from words such as ``1000``, ``0.3`` or ``en=1000``; raise `UsageError` for anything else."""
    if isinstance(given, Mapping):
        amounts = {label_of(label) or NO_LABEL: _amount(value) for label, value in given.items()}
        if len(amounts) < len(given):
            raise UsageError(f"downsample={dict(given)!r} names a group twice; expected each once.")
    elif isinstance(given, int | float):
        return _amount(given)
    else:
        words = [given] if isinstance(given, str) else list(given)
        if len(words) == 1 and "=" not in str(words[0]):
            return _amount(words[0])
        pairs = [str(word).rpartition("=") for word in words]
        amounts = {label: _amount(value, bool(sign)) for label, sign, value in pairs}
        if len(amounts) < len(pairs):
            raise UsageError(f"downsample={words!r} names a group twice; expected each once.")
    if not amounts:
        raise UsageError(f"downsample was given with nothing in it; expected {_EXPECTED}.")
    return amounts


def _amount(value: Any, is_named: bool = True) -> Amount:
    number: Any = value
    if isinstance(value, str) and is_named:
        try:
            number = float(value) if set(value) & set(".eE") else int(value)
        except ValueError:
            number = None
    if isinstance(number, float) and number > 1 and number.is_integer():
        number = int(number)
    is_number = isinstance(number, int | float) and not isinstance(number, bool) and is_named
    if not is_number or not 0 <= number < 2**63 or (isinstance(number, float) and number > 1):
        raise UsageError(f"downsample: found {value!r}; expected {_EXPECTED}.")
    amount: Amount = number
    return amount


class Cut(Struct, frozen=True):
    """The first document of a group that is left out, and all behind it with it."""

    hash: int
    shard: str  # path; of equal hashes, documents of earlier shards, and earlier rows of this one, are kept
    row: int


class GroupCuts(Struct, frozen=True):
    """Cut of each group; documents before it are kept."""

    by: str | None  # column of the groups
    seed: int
    of: Mapping[str, Cut | None]  # by label; None: all of it. Nothing is kept of other groups
    share: float = 1.0  # of the documents that is kept, for estimates
    epochs: Mapping[str, int] = {}  # by label: times that all of it is taken besides

    def params(self) -> dict[str, Any]:
        """Return all that decides which documents are kept."""
        cuts = {
            label: None if cut is None else [f"{cut.hash:016x}", cut.shard, cut.row]
            for label, cut in sorted(self.of.items())
        }
        epochs = {label: count for label, count in sorted(self.epochs.items()) if count}
        return {"by": self.by, "seed": self.seed, "cuts": cuts, **({"epochs": epochs} if epochs else {})}

    def in_shard(self, shard: str) -> "ShardCuts":
        """Return them for the rows of one shard."""
        return ShardCuts(self, shard)


class ShardCuts:
    """The cuts as tables for the rows of one shard, an entry for each group and a last one for all others."""

    def __init__(self, cuts: GroupCuts, shard: str) -> None:
        self._seed, self._by = cuts.seed, cuts.by
        self._places = {label: place for place, label in enumerate(cuts.of)}
        found = [*cuts.of.values(), Cut(0, "", 0)]
        self._whole = np.array([cut is None for cut in found])
        self._hashes = np.array([0 if cut is None else cut.hash for cut in found], np.uint64)
        self._rows = np.array([0 if cut is None else _rows_before(cut, shard) for cut in found], np.int64)
        self._epochs = np.array([*(cuts.epochs.get(label, 0) for label in cuts.of), 0])
        self.repeats = bool(self._epochs.any())  # whether a row may be taken more than once

    def times(
        self, source: pa.Array, identity: pa.Array, labels: pa.Array | None, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return how often each row (n,) is taken, given their numbers in the shard; `labels` are those of the column of the groups."""
        hashes = document_hashes(source, identity, self._seed)
        places, other = self._places, len(self._places)
        if self._by is None or labels is None:
            which = np.full(len(rows), places.get(ALL, other))
        else:
            which = places_of(labels, list(places), places.get(NO_LABEL))
        limits = self._hashes[which]
        is_tied = (hashes == limits) & (rows < self._rows[which])
        times: npt.NDArray[np.int64] = self._epochs[which] + (
            self._whole[which] | (hashes < limits) | is_tied
        )
        return times


def _rows_before(cut: Cut, shard: str) -> int:
    """Return how many rows of a shard lie before a cut, of those with its hash."""
    ours, theirs = shard.encode(), cut.shard.encode()
    if ours == theirs:
        return cut.row
    return np.iinfo(np.int64).max if ours < theirs else 0
