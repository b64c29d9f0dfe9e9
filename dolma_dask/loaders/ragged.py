"""Opens folders of ragged token shards: documents by number, as views of mapped files.

Reads our shards and those of the original tool (no record beside them). Opening a folder reads the headers of every
shard and nothing else; ids are mapped, never loaded. A document is a view: about 1 us, no copy, read-only. Each
open shard holds one file descriptor; the ``max_open_shards`` used last stay open (1,024 C4 shards would pass a usual
``ulimit -n``), and a view keeps its file mapped as long as it lives.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import AlignmentError, CorruptFileError, DataError, UsageError
from dolma_dask.formats.ragged import (
    MAX_SIDECAR_BYTES,
    NpyHeader,
    RaggedNames,
    RaggedSidecar,
    parse_npy_header,
    parse_sidecar,
)
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io.files import checksum, is_local, local_path

_HEAD_BYTES = 4096


class TokenShard(Struct, frozen=True):
    """One pair of files, its headers read and checked; pickles in bytes."""

    folder: str  # absolute path of the folder
    names: RaggedNames  # names of the files in it
    # types and counts of the two npy files
    ids: NpyHeader
    lengths: NpyHeader
    sidecar: RaggedSidecar | None  # the record beside the pair; other tools write none

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.lengths.count

    @property
    def tokens(self) -> int:
        """Number of ids."""
        return self.ids.count

    @property
    def data_path(self) -> Path:
        """Path of the ids."""
        return Path(self.folder, self.names.data)

    @property
    def lengths_path(self) -> Path:
        """Path of the document lengths."""
        return Path(self.folder, self.names.lengths)

    def open(self) -> "OpenShard":
        """Map the ids, load the lengths.

        Raises `AlignmentError` if the lengths do not add up to the ids, `CorruptFileError` if one is negative or a file was replaced since it was listed.
        """
        offsets = np.zeros(self.documents + 1, np.int64)
        np.cumsum(self.read_lengths(), dtype=np.int64, out=offsets[1:])
        if offsets[-1] != self.tokens:
            raise AlignmentError(
                f"{self.lengths_path} holds {self.documents} lengths that add up to {offsets[-1]} tokens,"
                f" {self.data_path} holds {self.tokens}: the two are not of one run; write the shard again",
                documents=self.documents,
                expected=int(offsets[-1]),
                found=self.tokens,
            )
        return OpenShard(self._map_ids(), offsets)

    def verify(self) -> None:
        """Read both files in full and compare them with the record, if there is one; raises `CorruptFileError` for other bytes."""
        if self.sidecar is None:
            return
        for path, part in ((self.lengths_path, "len"), (self.data_path, "data")):
            found, expected = checksum(str(path)), self.sidecar.checksums.get(part)
            if found != expected:
                raise CorruptFileError(
                    f"{path} has checksum {found}, its record says {expected}: bytes changed since they were written;"
                    " copy or write the shard again",
                    path=str(path),
                    found=found,
                    expected=expected,
                )

    def read_lengths(self) -> NDArray[np.integer[Any]]:
        """Return the tokens of each document (n_docs,); raises `CorruptFileError` if one is negative or the file was replaced since it was listed."""
        _check_size(self.lengths_path, self.lengths, "documents")
        lengths = np.fromfile(
            self.lengths_path, self.lengths.dtype, self.documents, offset=self.lengths.offset
        )
        if lengths.size and int(lengths.min()) < 0:
            row = int(np.flatnonzero(lengths < 0)[0])
            raise CorruptFileError(
                f"{self.lengths_path}: document {row} has length {lengths[row]}, expected 0 or more; write the shard"
                " again",
                row=row,
            )
        return lengths

    def _map_ids(self) -> NDArray[np.integer[Any]]:
        _check_size(self.data_path, self.ids, "tokens")
        if not self.tokens:
            return np.empty(0, self.ids.dtype)
        mapped = np.memmap(self.data_path, self.ids.dtype, "r", offset=self.ids.offset, shape=(self.tokens,))
        return np.asarray(mapped)


@dataclass(frozen=True, eq=False)
class OpenShard(Sequence[NDArray[np.integer[Any]]]):
    """The documents of one shard."""

    ids: NDArray[np.integer[Any]]  # (n_tokens,) all ids, mapped from the file, read-only
    offsets: NDArray[np.int64]  # (n_docs + 1,) document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: Any) -> Any:
        row = checked_row(row, len(self))
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.integer[Any]]]:
        start = 0
        for stop in self.offsets[1:].tolist():
            yield self.ids[start:stop]
            start = stop


def checked_row(row: SupportsIndex, count: int) -> int:
    """Return ``row`` counted from the start; IndexError if there are not that many."""
    number = index(row)
    if not -count <= number < count:
        raise IndexError(f"item {number} of {count}; expected {-count} to {count - 1}")
    return number + count if number < 0 else number


def read_shard(folder: Path, names: RaggedNames) -> TokenShard:
    """Read and check the headers of one shard.

    Raises `CorruptFileError` if a file is missing, truncated or damaged, `AlignmentError` if the record describes other files.
    """
    ids = _read_header(folder / names.data, "tokens")
    lengths = _read_header(folder / names.lengths, "documents")
    return TokenShard(str(folder), names, ids, lengths, _read_sidecar(folder / names.sidecar, ids, lengths))


def _read_header(path: Path, what: str) -> NpyHeader:
    try:
        with path.open("rb", buffering=0) as file:
            header = parse_npy_header(file.read(_HEAD_BYTES), str(path))
    except FileNotFoundError as error:
        raise CorruptFileError(
            f"{path} does not exist; a token shard is a pair *.data.npy and *.len.npy. Copy the missing file, or write"
            " the shard again",
            path=str(path),
        ) from error
    _check_size(path, header, what)
    return header


def _check_size(path: Path, header: NpyHeader, what: str) -> None:
    size = path.stat().st_size
    if size != header.file_bytes:
        raise CorruptFileError(
            f"{path} has {size} bytes, expected {header.file_bytes} (a header of {header.offset} and {header.count}"
            f" {what} of type {header.dtype}): it is {'truncated' if size < header.file_bytes else 'too long'}; copy"
            " or write the shard again",
            path=str(path),
            found=size,
            expected=header.file_bytes,
        )


def _read_sidecar(path: Path, ids: NpyHeader, lengths: NpyHeader) -> RaggedSidecar | None:
    try:
        with path.open("rb") as file:
            sidecar = parse_sidecar(file.read(MAX_SIDECAR_BYTES + 1), str(path))
    except FileNotFoundError:
        return None
    said = (sidecar.documents, sidecar.tokens, sidecar.dtype)
    found = (lengths.count, ids.count, ids.dtype.str)
    if said != found:
        raise AlignmentError(
            f"{path} describes (documents, tokens, type) {said}, the npy files hold {found}: they are not of one run;"
            " write the shard again",
            expected=said,
            found=found,
        )
    return sidecar


_DATA, _LENGTHS = ".data.npy", ".len.npy"


class RaggedDataset(Sequence[NDArray[np.integer[Any]]]):
    """Documents of many token shards, in shard order. Make one with `open_ragged`.

    Parameters
    ----------
    shards : sequence of TokenShard
        In the order in which their documents are numbered.
    max_open_shards : int
        How many shards stay mapped.

    Attributes
    ----------
    shards : tuple of TokenShard
    """

    def __init__(self, shards: Sequence[TokenShard], *, max_open_shards: int = 64) -> None:
        self.shards = tuple(shards)
        self._max_open = max_open_shards
        self._starts = [0, *accumulate(shard.documents for shard in self.shards)]
        self._open = lru_cache(max_open_shards)(lambda number: self.shards[number].open())

    def __reduce__(self) -> tuple[Any, ...]:
        # a worker maps the files itself
        return partial(RaggedDataset, max_open_shards=self._max_open), (self.shards,)

    def __repr__(self) -> str:
        return f"<RaggedDataset: {len(self.shards)} shards, {len(self)} documents, {self.tokens} {self.dtype} tokens>"

    @property
    def tokens(self) -> int:
        """Number of ids in all shards."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids, the same in all shards."""
        return self.shards[0].ids.dtype

    def shard(self, number: int) -> OpenShard:
        """Open shard ``number``, checked; the ones used last stay open."""
        return self._open(checked_row(number, len(self.shards)))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: Any) -> Any:
        row = checked_row(row, len(self))
        number = bisect_right(self._starts, row) - 1
        return self._open(number)[row - self._starts[number]]

    def __iter__(self) -> Iterator[NDArray[np.integer[Any]]]:
        for number in range(len(self.shards)):
            yield from self._open(number)


def open_ragged(
    folder_or_pair: str | os.PathLike[str], *, partial: bool = False, max_open_shards: int = 64
) -> RaggedDataset:
    """Open token shards for reading.

    Parameters
    ----------
    folder_or_pair : str or path
        A flat local folder of shards, or one shard by the path of its ``.data.npy`` or ``.len.npy``.
    partial : bool
        Read what is there of an unfinished or partly copied set. Without it, a missing or unfinished shard is an
        error, because a subset that looks whole is worse than none.
    max_open_shards : int
        How many shards stay mapped at a time.

    Returns
    -------
    RaggedDataset
        ``len`` is the number of documents, ``dataset[i]`` a 1-D view of ids.

    Raises
    ------
    UsageError
        Not a local folder or pair, or no shard in it.
    CorruptFileError
        A file is truncated, damaged, left over from a writer that was interrupted, or missing.
    DataError
        Shards were made with different tokenizers or types.
    """
    if not isinstance(folder_or_pair, str | os.PathLike):
        raise UsageError(
            f"the token shards are of type {type(folder_or_pair).__name__}; expected the path of a folder, or of a .data.npy or .len.npy file."
        )
    text = os.fspath(folder_or_pair)
    if not is_local(text):
        raise UsageError(
            f"{text}: token shards are read from local files only; copy the folder first", url=text
        )
    path = local_path(text).expanduser().absolute()
    if path.is_dir():
        shards = [read_shard(path, names) for names in _list_shards(path, partial)]
    else:
        shards = [read_shard(path.parent, RaggedNames(_stem(path)))]
    _check_uniform(shards)
    return RaggedDataset(shards, max_open_shards=max_open_shards)


def _stem(path: Path) -> str:
    for suffix in (_DATA, _LENGTHS):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    raise UsageError(
        f"{path} is neither a folder nor the {_DATA} or {_LENGTHS} of a token shard", path=str(path)
    )


def _list_shards(folder: Path, partial: bool) -> list[RaggedNames]:
    files = {entry.name for entry in os.scandir(folder) if not entry.name.startswith(".")}
    pairs = [RaggedNames(name.removesuffix(_DATA)) for name in files if name.endswith(_DATA)]
    if not partial:
        _check_left_over(folder, files)
        _check_complete(folder, pairs)
    if not pairs:
        below = sorted(name for name in files if any(folder.glob(f"{name}/*{_DATA}")))
        hint = f"; open one of its folders: {', '.join(below)}" if below else _of_trainer(files)
        raise UsageError(f"{folder} holds no *{_DATA}, expected pairs of *{_DATA} and *{_LENGTHS}{hint}")
    return sorted(pairs, key=_order)


def _of_trainer(files: Iterable[str]) -> str:
    """Say which trainer the files are for, if they are not for this reader."""
    found = (name for name, form in FORMATS.items() if any(file.endswith(form.data) for file in files))
    name = next(found, None)
    return (
        f"; its files are of the format {name}, for other readers. Make pairs by ragged without --format"
        if name
        else ""
    )


def _order(names: RaggedNames) -> tuple[str, int]:
    numbered = names.numbered
    return (numbered[0], numbered[1]) if numbered else (names.stem, 0)


def _check_left_over(folder: Path, files: set[str]) -> None:
    for name in sorted(files):
        if name.endswith(_LENGTHS) and name.removesuffix(_LENGTHS) + _DATA not in files:
            raise CorruptFileError(
                f"{folder / name} is left over: its {_DATA}, which is written last, does not exist, so the writer was"
                " interrupted or is still at work. Run it again, or open with partial=True to read the shards that"
                " are whole",
                path=str(folder / name),
            )


def _check_complete(folder: Path, pairs: list[RaggedNames]) -> None:
    sets: dict[tuple[str, int], set[int]] = {}
    for name, number, count in filter(None, (names.numbered for names in pairs)):
        sets.setdefault((name, count), set()).add(number)
    for (name, count), numbers in sorted(sets.items()):
        missing = sorted(set(range(count)) - numbers)
        if missing:
            raise CorruptFileError(
                f"{folder} holds {len(numbers)} of the {count} shards {name}.*-of-*; missing: {missing[:10]}. Run the"
                " writer again, or open with partial=True to read the shards that are there",
                folder=str(folder),
                missing=missing,
            )


def _check_uniform(shards: list[TokenShard]) -> None:
    """Ids of two vocabularies must not be read as one; shards without a record are taken on trust."""
    types: dict[object, TokenShard] = {}
    makers: dict[object, TokenShard] = {}
    for shard in shards:
        types.setdefault(shard.ids.dtype.str, shard)
        if shard.sidecar is not None:
            made_by = shard.sidecar.tokenizer
            makers.setdefault((made_by.fingerprint, made_by.bos, made_by.eos), shard)
    for what, kinds in (("type", types), ("tokenizer fingerprint, bos, eos", makers)):
        if len(kinds) > 1:
            (first, one), (second, other) = list(kinds.items())[:2]
            raise DataError(
                f"{one.data_path} has {what} {first}, {other.data_path} has {second}; shards of one folder must come"
                " from one tokenizer and the same special tokens. Write them again, or keep them in two folders",
                found=[first, second],
            )
