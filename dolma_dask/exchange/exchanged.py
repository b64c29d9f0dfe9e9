"""What an exchange leaves: what its reducer told of each range, and its records by shard, until they are removed."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dolma_dask.errors import UsageError
from dolma_dask.exchange.bucket_file import BucketFile
from dolma_dask.exchange.contract import Records, to_records, word_count
from dolma_dask.exchange.folders import remove_exchange
from dolma_dask.exchange.phases import COLLATE, file_of
from dolma_dask.io import files
from dolma_dask.journal import Record


@dataclass(frozen=True)
class ShardRecords:
    """The records that a reducer gave out, by shard; a few hundred bytes, for workers.

    Attributes
    ----------
    folder : str
        Of the exchange.
    dtype : numpy.dtype
        Of the records.
    firsts, counts : tuple of int
        First shard and number of shards of each file.
    seals : tuple of str
        Of each file: another one is not read.
    """

    folder: str
    dtype: np.dtype[Any]
    firsts: tuple[int, ...]
    counts: tuple[int, ...]
    seals: tuple[str, ...]

    def of_shard(self, number: int) -> Records:
        """Return the records of a shard, sorted by all fields.

        Raises
        ------
        CorruptFileError
            A file is gone or damaged.
        """
        group = bisect_right(self.firsts, number) - 1
        if group < 0 or number >= self.firsts[group] + self.counts[group]:
            return np.empty(0, self.dtype)
        bucket = number - self.firsts[group]
        url = files.join(self.folder, file_of(COLLATE, group))
        with BucketFile(url, word_count(self.dtype), self.counts[group], self.seals[group]) as opened:
            found = list(opened.slices(bucket, bucket + 1))
        return to_records(found[0], self.dtype) if found else np.empty(0, self.dtype)


@dataclass(frozen=True)
class Exchanged:
    """The outcome of `dolma_dask.exchange.exchange`; pickles.

    Attributes
    ----------
    folder : str
        Where its files lie until `remove`.
    infos : tuple of dict
        What the reducer told, one per range of keys, in the order of keys; ranges without records are left out.
    records : Mapping[str, Record]
        What the emitter told, by `Task.shard`: inputs, rows, counts, info and side files.
    by_shard : ShardRecords or None
        The part of this that workers need; None if the reducer gives out no records.
    """

    folder: str
    infos: tuple[dict[str, Any], ...]
    records: Mapping[str, Record]
    by_shard: ShardRecords | None = None

    def of_shard(self, number: int) -> Records:
        """Return what the reducer gave out for a shard, sorted by all fields.

        Parameters
        ----------
        number : int
            Of the shard, as in its places.

        Raises
        ------
        UsageError
            The reducer gives out no records.
        CorruptFileError
            A file is gone or damaged.
        """
        if self.by_shard is None:
            raise UsageError(
                "this reducer gives out no records; expected one with a dtype. Look at `infos` instead."
            )
        return self.by_shard.of_shard(number)

    def remove(self) -> None:
        """Delete all files of the exchange, side files included."""
        remove_exchange(self.folder)
