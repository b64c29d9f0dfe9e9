"""Numbers of levels passed, of many rules in one number: 3 bits a rule, 17 rules below 2**53, so that float64 and JSON keep every bit.

An attribute set ``quality`` holds the number ``quality``, of more rules ``quality_2`` and so on too. Readers are shown columns in their place:
``quality.<rule>`` for each rule, from 0 to 7, and ``quality.level``, the least of all. The names stand once, in the record of
the file, and the columns are of the kind ``level``. Cost: 1 ns per row and column.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dolma_dask.formats.exact_numbers import nearest
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Counts

LEVEL_KEY = "level"
"""Name of the column that holds the least level of all rules."""

MAX_LEVELS = 7
"""Most levels that 3 bits tell apart from none."""

RULES = 17
"""Rules in one number."""

BITS = 3
"""Bits of a rule: the first has the lowest."""


def level_keys(name: str, rules: Sequence[str]) -> tuple[str, ...]:
    """Return the keys that readers of a set are shown: of the least level, and of each rule in the order of their bits."""
    return tuple(f"{name}.{rule}" for rule in (LEVEL_KEY, *rules))


def stored_keys(keys: Sequence[str]) -> list[str]:
    """Return the keys of the numbers that hold the levels of some `level_keys`."""
    name, count = keys[0].removesuffix(f".{LEVEL_KEY}"), -(-(len(keys) - 1) // RULES)
    return [name, *(f"{name}_{number}" for number in range(2, count + 1))]


def kinds_to_read(requested: Mapping[str, AttributeKind], keys: Sequence[str]) -> Mapping[str, AttributeKind]:
    """Return the kinds of the columns of a file that hold what is `requested`, `keys` the level keys of the file."""
    wanted = requested.keys() & set(keys)
    if not wanted:
        return requested
    others: dict[str, AttributeKind] = {key: kind for key, kind in requested.items() if key not in wanted}
    stored = stored_keys(keys)
    needed = stored if keys[0] in wanted else [stored[(keys.index(key) - 1) // RULES] for key in wanted]
    return {**others, **{key: "number" for key in stored if key in needed}}


def unpacked(
    columns: Mapping[str, pa.Array], requested: Collection[str], keys: Sequence[str]
) -> Mapping[str, pa.Array]:
    """Return columns (n,) with the `requested` levels in place of their numbers: float64, null where the number is."""
    stored, places = stored_keys(keys), {key: keys.index(key) - 1 for key in requested if key in keys}
    numbers = {key: nearest(columns[key]) for key in stored if places and key in columns}
    bits = {key: number.fill_null(0.0).to_numpy().astype(np.int64) for key, number in numbers.items()}

    def level(place: int) -> Counts:
        found: Counts = bits[stored[place // RULES]] >> BITS * (place % RULES) & MAX_LEVELS
        return found

    def column(place: int) -> pa.Array:
        found = level(place) if place >= 0 else np.minimum.reduce([level(k) for k in range(len(keys) - 1)])
        there = validity(numbers[stored[max(place, 0) // RULES]])
        return pa.array(found.astype(np.float64), mask=~there)

    others = {key: values for key, values in columns.items() if key not in numbers}
    return {**others, **{key: column(place) for key, place in places.items()}}
