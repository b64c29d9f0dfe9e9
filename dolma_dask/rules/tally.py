"""Counts of what the conditions of a rule drop: the only place where that is counted.

Each document is dropped by a set of conditions, a word with a bit for each. Documents and bytes of their text by group (such as their source) and
word are all that is kept; what each condition drops, what it drops alone, what two drop together and what is kept follow from them, and counts
of several shards add up. Where a group has too many different sets, those of several conditions are folded into sums over pairs, and
where there are too many groups, the smallest are put together: no answer changes but that by group. Cost: 0.1 ms for each block of 2 MB.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.text.kernels import Bools, Counts

MAX_GROUPS = 10_000
"""Groups that are counted one by one, at least; the smallest of more are put together."""

MAX_SETS = 1000
"""Sets of conditions that are counted one by one: in memory in each group, in a journal in all groups of a shard."""

OTHER_GROUPS = "(other sources)"
"""Name of the groups that are put together."""

Amount = tuple[int, int]
"""Documents, and bytes of their text."""

Words = dict[str, Amount]
"""Amounts by word, in decimal digits as the keys of a journal have to be: bit i is set where condition i drops a document."""

_NOTHING: Amount = (0, 0)
_NONE = "0"  # word of what nothing drops


class Tally(msgspec.Struct, omit_defaults=True):
    """Documents that conditions drop. Arrays of amounts hold documents and bytes of text in their last dimension."""

    conditions: int = 0
    sets: dict[str, Words] = {}  # by group
    # of sets that are folded, by group: amounts of all documents (word of no bit), of each condition (one bit) and of each pair (two bits)
    folded: dict[str, Words] = {}
    has_groups: bool = True  # False: some documents were counted without their group

    def count(
        self, dropped: Bools, sizes: Counts | None = None, groups: pa.StringArray | None = None
    ) -> None:
        """Count documents.

        Parameters
        ----------
        dropped : (conditions, documents)
            Which conditions drop each document.
        sizes : (documents,)
            Bytes of their texts; None: 0.
        groups : (documents,)
            Their groups, of which null is the empty name; None: all are in one without a name.
        """
        names, codes = _encoded(groups, dropped.shape[1])
        packed = np.packbits(dropped, axis=0, bitorder="little").T
        keys = np.concatenate([codes.view(np.uint8).reshape(-1, _CODE), packed], axis=1)
        places, cells = _distinct(keys)
        documents = np.bincount(places, minlength=len(cells))
        weights = np.zeros(len(cells)) if sizes is None else np.bincount(places, sizes, len(cells))
        for cell, count, size in zip(cells, documents.tolist(), weights.tolist(), strict=True):
            group = names[int.from_bytes(cell[:_CODE], "little")]
            _add(
                self.sets.setdefault(group, {}),
                str(int.from_bytes(cell[_CODE:], "little")),
                (count, int(size)),
            )
        self._limit()

    def add(self, other: "Tally") -> None:
        """Add the counts of other documents, for the same conditions."""
        self.conditions = max(self.conditions, other.conditions)
        self.has_groups &= other.has_groups
        for own, more in ((self.sets, other.sets), (self.folded, other.folded)):
            for group, words in more.items():
                known = own.setdefault(group, {})
                for word, amount in words.items():
                    _add(known, word, amount)
        self._limit()

    def __add__(self, other: "Tally") -> "Tally":
        return sum_tallies((self, other))

    # -------------------------------------------------------------------------------------------- answers

    @property
    def total(self) -> Amount:
        """All documents."""
        return _sum([*_amounts(self.sets), *(words.get(_NONE, _NOTHING) for words in self.folded.values())])

    @property
    def kept(self) -> Amount:
        """Documents that no condition drops."""
        return _sum(words.get(_NONE, _NOTHING) for words in self.sets.values())

    @property
    def dropped(self) -> Counts:
        """Documents that each condition drops (conditions, 2)."""
        return np.ascontiguousarray(self.together.diagonal().T)

    @property
    def alone(self) -> Counts:
        """Documents that each condition drops and no other (conditions, 2)."""
        found = [
            _sum(words.get(str(1 << each), _NOTHING) for words in self.sets.values())
            for each in range(self.conditions)
        ]
        return np.array(found, np.int64).reshape(-1, 2)

    @property
    def together(self) -> Counts:
        """Documents that two conditions drop both (conditions, conditions, 2); on the diagonal those of each."""
        bits = self._bits()
        amounts = np.array([*_amounts(self.sets)], np.float64).reshape(-1, 2)
        pairs = [bits.T @ (bits * amounts[:, [unit]]) for unit in (0, 1)]  # exact below 2 ** 53
        found = np.stack(pairs, axis=-1).astype(np.int64)
        for words in self.folded.values():
            for word, amount in words.items():
                numbers = _numbers(word)
                for pair in {(numbers[0], numbers[-1]), (numbers[-1], numbers[0])} if numbers else ():
                    found[pair] += amount
        return found

    def by_group(self) -> dict[str, "Tally"]:
        """Return the counts of each group, that of most documents first."""
        found = {group: self._renamed({group: group}) for group in self.sets}
        return dict(sorted(found.items(), key=lambda item: (-item[1].total[0], item[0])))

    def largest(self, count: int) -> "Tally":
        """Return the counts of the groups with most documents by group, those of all others under `OTHER_GROUPS`."""
        groups = [group for group in self.by_group() if group != OTHER_GROUPS]
        others = [*groups[count:], *self.sets.keys() & {OTHER_GROUPS}]
        return self._renamed({group: group for group in groups[:count]} | dict.fromkeys(others, OTHER_GROUPS))

    def compact(self) -> "Tally":
        """Return the same for a journal: where there are more than `MAX_SETS` counts, without groups."""
        if sum(map(len, (*self.sets.values(), *self.folded.values()))) <= MAX_SETS:
            return self
        found = self._renamed(dict.fromkeys(self.sets, ""))
        found.has_groups = False
        return found

    # -------------------------------------------------------------------------------------------- room

    def _bits(self) -> npt.NDArray[np.float64]:
        """Return the words of all sets as bits (sets, conditions)."""
        width = max(-(-self.conditions // 8), 1)
        words = (int(word) for words in self.sets.values() for word in words)
        data = b"".join(word.to_bytes(width, "little") for word in words)
        packed = np.frombuffer(data, np.uint8).reshape(-1, width)
        return np.unpackbits(packed, axis=1, count=self.conditions, bitorder="little").astype(np.float64)

    def _renamed(self, names: Mapping[str, str]) -> "Tally":
        """Return some groups under other names; those of one name are put together."""
        found = Tally(self.conditions, has_groups=self.has_groups)
        for group, name in names.items():
            folded = {name: self.folded[group]} if group in self.folded else {}
            found.add(Tally(self.conditions, {name: self.sets[group]}, folded))
        return found

    def _limit(self) -> None:
        """Keep within `MAX_SETS` and `MAX_GROUPS`."""
        for group in [group for group, words in self.sets.items() if len(words) > MAX_SETS + self.conditions]:
            self._fold(group)
        if len(self.sets) > 2 * MAX_GROUPS:
            reduced = self.largest(MAX_GROUPS)
            self.sets, self.folded = reduced.sets, reduced.folded

    def _fold(self, group: str) -> None:
        """Put the sets of several conditions of a group into sums over pairs."""
        words, folded = self.sets[group], self.folded.setdefault(group, {})
        for word, numbers in [(word, _numbers(word)) for word in words]:
            if len(numbers) > 1:
                amount = words.pop(word)
                parts = ((), *((one,) for one in numbers), *combinations(numbers, 2))
                for part in parts:
                    _add(folded, str(sum(1 << number for number in part)), amount)


def _numbers(word: str) -> list[int]:
    """Return the numbers of the conditions of a word."""
    bits = int(word)
    return [number for number in range(bits.bit_length()) if bits >> number & 1]


def sum_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the counts of all documents."""
    found = Tally()
    for tally in tallies:
        found.add(tally)
    return found


def _add(words: Words, word: str, amount: Amount) -> None:
    documents, size = words.get(word, _NOTHING)
    words[word] = documents + amount[0], size + amount[1]


def _amounts(groups: Mapping[str, Words]) -> Iterator[Amount]:
    return (amount for words in groups.values() for amount in words.values())


def _sum(amounts: Iterable[Amount]) -> Amount:
    documents = size = 0
    for one, bytes_of_one in amounts:
        documents += one
        size += bytes_of_one
    return documents, size


# ------------------------------------------------------------------------------------------------ rows to cells

_CODE = 4
"""Bytes of the number of a group before the word of a document."""


def _encoded(groups: pa.StringArray | None, rows: int) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return the names of the groups and the number of that of each row."""
    if groups is None:
        return [""], np.zeros(rows, np.int32)
    encoded = groups.fill_null("").dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _distinct(keys: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Return the different rows among keys (n, width), and the number of that of each row."""
    data = pa.py_buffer(np.ascontiguousarray(keys))
    rows = pa.FixedSizeBinaryArray.from_buffers(pa.binary(keys.shape[1]), len(keys), [None, data])
    encoded = rows.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
