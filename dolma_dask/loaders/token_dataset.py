"""Rows of tokens for training loops: any order is a function of the number of a sample, so that a run goes on from one integer, on any number of processes.

A *sample* is a row at its place in the order of the whole run, counted from 0 over all epochs and processes. Which row that is follows from the shards,
the options and the seed; nothing depends on processes, and nothing is read to find out. Process ``rank`` of ``world_size`` takes every ``world_size``-th sample, or batch.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import index
from typing import Any, Literal, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from dolma_dask.errors import DataError, UsageError
from dolma_dask.io import files
from dolma_dask.loaders.filling import LABELS, Batch, BatchShape, Labels, rows_of
from dolma_dask.loaders.index import Int64s, starts_of
from dolma_dask.loaders.packed import MAX_LENGTH
from dolma_dask.loaders.ragged import RaggedDataset, open_ragged
from dolma_dask.loaders.rows import KINDS, RowKind, RowShape, RowSource
from dolma_dask.loaders.shards import check_makers
from dolma_dask.tokens.order import Schedule, permuted, permuted_in_blocks

Order = Literal["permuted", "blocks", "written"]

BLOCK_TOKENS = 1 << 24
"""Tokens of a block of neighbouring rows: what is read together with ``order="blocks"``."""

_AT_A_TIME = 32
"""Samples whose places are found together."""

Shards = str | os.PathLike[str] | RaggedDataset


class Pool(Struct, frozen=True):
    """Rows of some datasets, of which each is taken once in an epoch."""

    datasets: tuple[RaggedDataset, ...]
    rows: tuple[RowSource, ...]
    starts: Int64s  # (n_datasets + 1,) first row of each, counted over all

    @classmethod
    def of(cls, datasets: Sequence[RaggedDataset], shape: RowShape) -> "Pool":
        """Return all rows of datasets."""
        rows = tuple(shape.open(dataset) for dataset in datasets)
        return cls(tuple(datasets), rows, starts_of([len(one) for one in rows]))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def fill(self, shape: BatchShape, batch: Batch, at: Int64s, numbers: Int64s) -> None:
        """Put rows into the places `at` of a batch."""
        if len(self.rows) == 1:
            shape.fill(batch, at, self.datasets[0], self.rows[0], numbers)
            return
        sources = np.searchsorted(self.starts, numbers, side="right") - 1
        for source in np.unique(sources).tolist():
            ours = sources == source
            rows = numbers[ours] - self.starts[source]
            shape.fill(batch, at[ours], self.datasets[source], self.rows[source], rows)


class TokenDataset:
    """Rows of `seq_length` tokens of token shards, in a seeded order that goes on from one integer.

    Items are dicts of 1-D arrays: ``input_ids``, ``labels``, and of packed rows ``segment_ids`` (documents of the row from 1, padding 0) and ``position_ids``
    (from 0 in each), so that attention can be kept within documents. ``len(data)`` and ``data[k]`` are of the whole run: sample ``k`` is the same for all
    processes. Iterating yields the samples of this process: ``rank``, ``rank + world_size`` and so on.

    Parameters
    ----------
    urls : str, path, RaggedDataset, or a sequence of these
        Folders of token shards, local or of a store; see `open_ragged`.
    seq_length : int
        Tokens of a row.
    seed : int
        Of the order, 0 to 2**64 - 1.
    rank, world_size : int
        This process, from 0, and how many there are.
    weights : sequence of float, optional
        Shares of the samples that each folder gets at any time, each in epochs of its own. Without them all folders are one.
    epochs : int or None
        How often a row is taken at most: the run ends before a folder would begin its next epoch. None: it has no end.
    order : {"permuted", "blocks", "written"}
        Any row after any other; or blocks of neighbouring rows (2**24 tokens) in any order, and any order within them, for disks and stores that read
        on better than here and there; or as written.
    rows : {"windows", "stream", "best_fit"}
        Windows cut out of each shard as it is, without the rest behind the last whole one; all documents back to back, the last row padded; or whole documents packed, longer ones cut.
    labels : {"same", "shifted", "none"}
        As `input_ids`, for models that shift them (Hugging Face); the token that follows each (Megatron, nanoGPT), for which a row reads one token more; or none. Where nothing
        is to be predicted they are -100: padding, and with "same" the first token of a packed document.
    eos : int, optional
        End token to put behind each document, of stream and best_fit, if the shards have none.
    pad : int
        Id behind the last token of a row.
    dtype : data type
        Of all arrays.

    Raises
    ------
    UsageError
        Options do not go together.
    DataError
        The shards have no row, or were made with different tokenizers. Also what `open_ragged` raises.

    Examples
    --------
    >>> data = dk.TokenDataset("out/ragged", 2048, seed=1)  # doctest: +SKIP
    >>> data[0]["input_ids"]  # doctest: +SKIP
    """

    def __init__(
        self,
        urls: Shards | Sequence[Shards],
        seq_length: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        weights: Sequence[float] | None = None,
        epochs: int | None = 1,
        order: Order = "permuted",
        rows: RowKind = "windows",
        labels: Labels = "same",
        eos: int | None = None,
        pad: int = 0,
        dtype: npt.DTypeLike = np.int64,
    ) -> None:
        _check_choice("order", order, get_args(Order))
        _check_choice("rows", rows, KINDS)
        _check_choice("labels", labels, LABELS)
        # plain numbers, as states and keys have them
        seq_length = checked_number("seq_length", seq_length, 1, MAX_LENGTH)
        seed = checked_number("seed", seed, 0, 2**64 - 1)
        world_size = checked_number("world_size", world_size, 1, 2**31)
        rank = checked_number("rank", rank, 0, world_size - 1)
        epochs = epochs if epochs is None else checked_number("epochs", epochs, 1, 10**9)
        eos = eos if eos is None else checked_number("eos", eos, 0, 2**63 - 1)
        dtype = _checked_dtype(dtype)
        urls = opened = _opened(urls)
        weights = None if weights is None else _checked_weights(weights, len(opened))
        self._call = {name: value for name, value in locals().items() if name not in ("self", "opened")}
        self.rank, self.world_size, self.epochs, self.order, self.seed = rank, world_size, epochs, order, seed
        adds_end = _adds_end(opened, eos, rows)
        largest = [_largest_id(dataset) for dataset in opened] + [eos or 0] * adds_end
        # numbers of documents, and of tokens in them
        largest += [seq_length] * (rows == "best_fit")
        _check_holds(dtype, max(largest), labels)
        pad = checked_number("pad", pad, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        shape = RowShape(rows, seq_length, int(labels == "shifted"), adds_end)
        self._shape = BatchShape(seq_length, dtype, labels, eos, pad, rows == "best_fit")
        groups = [opened] if weights is None else [[dataset] for dataset in opened]
        self._pools = [Pool.of(group, shape) for group in groups]
        self._schedule = None if weights is None else Schedule.of(weights)
        self._check_rows()
        self._made_of = {
            "shards": [dataset.fingerprint for dataset in opened],
            "weights": weights,
            "seq_length": seq_length,
            "seed": seed,
            "order": order,
            "rows": rows,
            "labels": labels,
            "eos": eos if adds_end else None,
        }
        self._start = self._done = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # a worker opens the files itself
        return _made_again, (self._call, self._start)

    def __repr__(self) -> str:
        rows = " + ".join(f"{len(pool):,}" for pool in self._pools)
        return f"<TokenDataset: {rows} rows of {self._shape.length:,} tokens, {self.order}, rank {self.rank} of {self.world_size}>"

    def _check_rows(self) -> None:
        for pool in self._pools:
            if not len(pool):
                tokens = sum(dataset.tokens for dataset in pool.datasets)
                raise DataError(
                    f"{pool.datasets[0]} makes no row of {self._shape.length:,} tokens; expected more than its {tokens:,}. Choose shorter rows, or rows='stream'."
                )

    # the order

    @cached_property
    def _total(self) -> int | None:
        """Samples of the run."""
        if self.epochs is None:
            return None
        limits = [self.epochs * len(pool) for pool in self._pools]
        return limits[0] if self._schedule is None else self._schedule.longest(limits)

    def __len__(self) -> int:
        if self._total is None:
            raise TypeError("a dataset of endless epochs has no length; give epochs")
        return self._total

    def _rows_of(self, samples: Int64s) -> Iterator[tuple[Pool, Int64s, Int64s]]:
        """Yield for each pool the places of its samples among all, and their rows."""
        if self._schedule is None:
            yield self._pools[0], np.arange(len(samples)), self._ordered(0, len(self._pools[0]), samples)
            return
        sources, places = self._schedule.places(samples)
        for number, pool in enumerate(self._pools):
            at = np.flatnonzero(sources == number)
            if len(at):
                yield pool, at, self._ordered(number, len(pool), places[at])

    def _ordered(self, number: int, count: int, places: Int64s) -> Int64s:
        """Return the rows at places of the order of a pool, which goes through epoch after epoch."""
        epochs, rows = np.divmod(places, count)
        if self.order == "written":
            return rows
        first = int(epochs[0])
        if (epochs == first).all():
            return self._drawn(rows, count, _key(self.seed, number, first))
        found = np.empty_like(rows)
        for epoch in np.unique(epochs).tolist():
            ours = epochs == epoch
            found[ours] = self._drawn(rows[ours], count, _key(self.seed, number, epoch))
        return found

    def _drawn(self, rows: Int64s, count: int, key: int) -> Int64s:
        if self.order == "permuted":
            return permuted(rows, count, key)
        return permuted_in_blocks(rows, count, max(BLOCK_TOKENS // self._shape.length, 1), key)

    # what is read

    def _read(self, samples: Int64s) -> Batch:
        batch = self._shape.empty(len(samples))
        for pool, at, rows in self._rows_of(samples):
            pool.fill(self._shape, batch, at, rows)
        return batch

    def read(self, samples: Sequence[int] | Int64s) -> Batch:
        """Return some samples of the whole run as arrays of two dimensions, (n, seq_length)."""
        if not len(samples):
            return self._shape.empty(0)
        numbers = np.array(samples)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise TypeError(
                f"samples of type {numbers.dtype} and shape {numbers.shape}; expected a list of whole numbers"
            )
        numbers = numbers.astype(np.int64)
        total = 2**62 if self._total is None else self._total
        if self._total is not None:
            numbers = np.where(numbers < 0, numbers + total, numbers)
        wrong = np.flatnonzero((numbers < 0) | (numbers >= total))
        if wrong.size:
            raise IndexError(f"sample {samples[wrong[0]]} of {total}")
        return self._read(numbers)

    def __getitem__(self, sample: Any) -> Any:
        if isinstance(sample, slice):
            return self.__getitems__(range(*sample.indices(len(self))))
        return self.__getitems__([index(sample)])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[Batch]:
        """Return some samples of the whole run, as views of arrays that they share."""
        return rows_of(self.read(samples))

    def __iter__(self) -> Iterator[Batch]:
        at, step = self._start, _AT_A_TIME * self.world_size
        while len(mine := self._within(np.arange(at + self.rank, at + step, self.world_size))):
            for number, row in enumerate(rows_of(self._read(mine)), 1):
                self._done = self._reached(at + number * self.world_size)
                yield row
            at += step

    def batches(
        self, size: int, *, drop_last: bool = False, worker: int = 0, workers: int = 1
    ) -> Iterator[Batch]:
        """Yield batches of `size` samples that follow each other: of all batches of the run those of this process, and of these every `workers`-th.

        Arrays have two dimensions, (size, seq_length). The last batch may be smaller; with `drop_last` all processes end with the last step in which each has a whole one.
        """
        checked_number("size", size, 1)
        checked_number("worker", worker, 0, checked_number("workers", workers, 1) - 1)
        turn, step = worker, size * self.world_size
        while True:
            end, first = self._start + (turn + 1) * step, self._start + turn * step + self.rank * size
            mine = self._within(np.arange(first, first + size))
            if not len(mine) or (drop_last and self._reached(end) < end):
                return
            batch = self._read(mine)
            self._done = self._reached(end)
            yield batch
            turn += workers

    def _within(self, samples: Int64s) -> Int64s:
        return samples if self._total is None else samples[samples < self._total]

    def _reached(self, samples: int) -> int:
        return samples if self._total is None else min(samples, self._total)

    def write_parquet(self, folder: str | os.PathLike[str], *, rows_per_file: int = 1 << 16) -> list[str]:
        """Write all samples of the run, in its order, as Parquet files ``rows.<i>-of-<n>.parquet``; return the names of those that were not there yet.

        Rows are stored without padding: ``input_ids``, ``length``, and of packed rows ``seq_lengths``, the tokens of each document. Each file appears whole; the same call goes on where
        one was stopped. Of several processes, each writes every ``world_size``-th file.

        Raises `UsageError`: the run has no end.
        """
        if self.epochs is None:
            raise UsageError("write_parquet of endless epochs; expected a number of epochs.")
        rows_per_file = checked_number("rows_per_file", rows_per_file, 1)
        from dolma_dask.loaders.export import write_parquet

        # only labels tell tokens from padding, and need a type with a sign
        known = {"labels": "same", "dtype": np.int64}
        plain = self if self._shape.labels == "same" else TokenDataset(**{**self._call, **known})
        return write_parquet(plain, files.normalize(os.fspath(folder)), rows_per_file)

    @property
    def seq_length(self) -> int:
        """Tokens of a row."""
        return self._shape.length

    @property
    def is_packed(self) -> bool:
        """Tell whether rows are packed documents."""
        return self._shape.has_segments

    @property
    def max_id(self) -> int:
        """Largest id that the tokenizer, or the type of the ids, has."""
        return max(map(_largest_id, self._call["urls"]))

    # where a run is

    @property
    def start(self) -> int:
        """First sample of the run that iterating begins with."""
        return self._start

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the shards and of all options that decide the order of the run."""
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(self._made_of, order="sorted"))

    def state_dict(self, samples: int | None = None) -> dict[str, Any]:
        """Return where the run is, of whole numbers and text: how many samples all processes have taken together, by default as far as this one iterated last.

        It holds for any rank, world size and number of workers.
        """
        done = self._done if samples is None else self._reached(checked_number("samples", samples, 0))
        return {"samples": done, "fingerprint": self.fingerprint, "made_of": dict(self._made_of)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin iterating where a run was.

        Raises `UsageError`: the state is of other shards or options, or none.
        """
        if not isinstance(state, Mapping) or not {"samples", "fingerprint"} <= state.keys():
            raise UsageError("this is no state of a TokenDataset; expected what its state_dict returned.")
        if state["fingerprint"] != self.fingerprint:
            theirs = state.get("made_of") or {}
            differing = [
                f"{name} ({theirs.get(name)} there, {mine} here)"
                for name, mine in self._made_of.items()
                if theirs.get(name) != mine
            ]
            raise UsageError(
                f"the state is of another run: {', '.join(differing)} differ; expected that of the same shards and options, in whose order it counts."
            )
        self._start = self._done = self._reached(checked_number("samples", state["samples"], 0, 2**62))


@lru_cache(1024)
def _key(seed: int, pool: int, epoch: int) -> int:
    return xxhash.xxh3_64_intdigest(f"{seed}/{pool}/{epoch}".encode())


def _made_again(call: dict[str, Any], start: int) -> TokenDataset:
    dataset = TokenDataset(**call)
    dataset._start = dataset._done = start
    return dataset


def _opened(urls: Shards | Sequence[Shards]) -> list[RaggedDataset]:
    if not isinstance(urls, str | os.PathLike | RaggedDataset | Sequence):
        raise UsageError(
            f"the token shards are of type {type(urls).__name__}; expected a folder of token shards, or several."
        )
    given = [urls] if isinstance(urls, str | os.PathLike | RaggedDataset) else list(urls)
    opened = [one if isinstance(one, RaggedDataset) else open_ragged(one) for one in given]
    if not opened:
        raise UsageError("no token shards; expected a folder or several.")
    check_makers([shard for dataset in opened for shard in dataset.shards])
    return opened


def _adds_end(datasets: Sequence[RaggedDataset], eos: int | None, rows: RowKind) -> bool:
    """Tell whether end tokens are added; shards that have one behind each document get no second."""
    if eos is None:
        return False
    records = (shard.sidecar.tokenizer for dataset in datasets for shard in dataset.shards if shard.sidecar)
    known = next((record.eos.id for record in records if record.eos), None)
    if known is not None and known != eos:
        raise UsageError(
            f"eos={eos}, and the documents of the shards end in {known}; expected that, or none."
        )
    if known is None and rows == "windows":
        raise UsageError(
            "eos with rows='windows', which are cut out of the shards as they are; expected shards with end tokens, or rows='stream'."
        )
    return known is None


def _checked_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise UsageError(f"dtype={dtype!r} is no data type; expected one such as int64.") from error
    if found.kind not in "iu" or not found.isnative:
        raise UsageError(
            f"dtype={found}; expected whole numbers in the byte order of this machine, such as int64."
        )
    return found


def _check_holds(dtype: np.dtype[Any], largest: int, labels: Labels) -> None:
    """Refuse a type that cannot hold the largest number of an array, or -100."""
    if np.iinfo(dtype).max < largest or (labels != "none" and dtype.kind == "u"):
        raise UsageError(
            f"dtype={dtype}; expected whole numbers up to {largest:,}{'' if labels == 'none' else ', and below 0 for labels'}, such as int64."
        )


def _largest_id(dataset: RaggedDataset) -> int:
    sidecar = dataset.shards[0].sidecar
    return sidecar.tokenizer.vocab_size - 1 if sidecar else int(np.iinfo(dataset.dtype).max)


def _checked_weights(weights: Sequence[float], count: int) -> list[float]:
    given = list(weights)
    are_numbers = all(isinstance(weight, int | float | np.number) for weight in given)
    if len(given) != count or not are_numbers or not all(0 < weight < float("inf") for weight in given):
        raise UsageError(f"weights={given} of {count} folders; expected a number above 0 for each.")
    return list(map(float, given))


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(f"{name}={value!r}; expected one of {', '.join(choices)}.")


def checked_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return a whole number as Python's own; raise `UsageError` for anything else, `True` too."""
    if (
        not isinstance(value, int | np.integer)
        or isinstance(value, bool)
        or value < least
        or (most is not None and value > most)
    ):
        above = f"{least} or more" if most is None else f"{least} to {most}"
        raise UsageError(f"{name}={value!r}; expected a whole number, {above}.")
    return int(value)
