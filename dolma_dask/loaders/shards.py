"""Token shards of a folder, local or of a store: listed, their headers read and checked, and kept for the next time.

What a folder holds is known by its listing (names, bytes, times or tags). The first time the head of every file is read; the result lies in the user's
cache then, so that the next process opens any number of shards with the listing and one read.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import xxhash
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
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.mapped import mapped
from dolma_dask.io.user_cache import cached

DATA, LENGTHS = ".data.npy", ".len.npy"

CACHE = "token_shards"
"""Folder of the user's cache."""

VERSION = 2
"""Raised whenever what lies in the cache has another form."""

_HEAD_BYTES = 4096

_SETTLED_SECONDS = 2.0
"""Age of a file whose time tells it from its next version: clocks of file systems are coarse."""

Items = NDArray[np.integer[Any]]


class TokenShard(Struct, frozen=True):
    """One pair of files, its headers read and checked; pickles in bytes."""

    folder: str  # absolute path or URL of the folder
    names: RaggedNames  # names of the files in it
    # types and counts of the two npy files
    ids: NpyHeader
    lengths: NpyHeader
    sidecar: RaggedSidecar | None  # the record beside the pair; other tools write none
    stamps: tuple[str, str]  # what tells the two npy files from later versions

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.lengths.count

    @property
    def tokens(self) -> int:
        """Number of ids."""
        return self.ids.count

    @property
    def data_url(self) -> str:
        """Path or URL of the ids."""
        return files.join(self.folder, self.names.data)

    @property
    def lengths_url(self) -> str:
        """Path or URL of the document lengths."""
        return files.join(self.folder, self.names.lengths)

    def verify(self) -> None:
        """Read both files in full and compare them with the record, if there is one; raises `CorruptFileError` for other bytes."""
        if self.sidecar is None:
            return
        for url, part in ((self.lengths_url, "len"), (self.data_url, "data")):
            found, expected = files.checksum(url), self.sidecar.checksums.get(part)
            if found != expected:
                raise CorruptFileError(
                    f"{url} has checksum {found}, its record says {expected}: bytes changed since they were written;"
                    " copy or write the shard again",
                    path=url,
                    found=found,
                    expected=expected,
                )

    def read_lengths(self) -> Items:
        """Return the tokens of each document (n_docs,); raises `CorruptFileError` if one is negative or the file was replaced since it was listed, `AlignmentError` if they do not add up to the ids."""
        lengths = self.map_lengths()
        if lengths.size and int(lengths.min()) < 0:
            row = int(np.flatnonzero(lengths < 0)[0])
            raise CorruptFileError(
                f"{self.lengths_url}: document {row} has length {lengths[row]}, expected 0 or more; write the shard"
                " again",
                row=row,
            )
        tokens = int(lengths.sum(dtype=np.int64))
        if lengths.max(initial=0) > self.tokens:  # the sum of such numbers can wrap to the right one
            tokens = sum(lengths.tolist())
        if tokens != self.tokens:
            raise AlignmentError(
                f"{self.lengths_url} holds {self.documents} lengths that add up to {tokens} tokens,"
                f" {self.data_url} holds {self.tokens}: the two are not of one run; write the shard again",
                documents=self.documents,
                expected=tokens,
                found=self.tokens,
            )
        return lengths

    def map_lengths(self) -> Items:
        """Return the lengths as they are, mapped; those of a store in memory."""
        if files.is_local(self.lengths_url):
            return _mapped(self.lengths_url, self.lengths, "documents", self.stamps[1])
        content = files.read_bytes(self.lengths_url)
        _check_size(self.lengths_url, len(content), self.lengths, "documents")
        return np.frombuffer(content, self.lengths.dtype, self.documents, self.lengths.offset)

    def map_ids(self) -> Items:
        """Return all ids of a local shard, mapped; raises `CorruptFileError` if the file was replaced since it was listed."""
        return _mapped(self.data_url, self.ids, "tokens", self.stamps[0])

    def offsets(self) -> NDArray[np.int64]:
        """Return where each document begins among the ids, and the end of the last (n_docs + 1,); raises what `read_lengths` does."""
        offsets = np.zeros(self.documents + 1, np.int64)
        np.cumsum(self.read_lengths(), dtype=np.int64, out=offsets[1:])
        return offsets


def _mapped(url: str, header: NpyHeader, what: str, stamp: str) -> Items:
    path = files.local_path(url)
    found = files.stat(url)
    _check_size(url, found.bytes if found else 0, header, what)
    if found and found.stamp != stamp:
        raise CorruptFileError(
            f"{url} was replaced since it was opened ({found.stamp}, expected {stamp}); open the folder anew, which reads what is there now",
            path=url,
            found=found.stamp,
            expected=stamp,
        )
    return mapped(path, header.dtype, header.count, header.offset)


def _check_size(url: str, size: int, header: NpyHeader, what: str) -> None:
    if size != header.file_bytes:
        raise CorruptFileError(
            f"{url} has {size} bytes, expected {header.file_bytes} (a header of {header.offset} and {header.count}"
            f" {what} of type {header.dtype}): it is {'truncated' if size < header.file_bytes else 'too long'}; copy"
            " or write the shard again",
            path=url,
            found=size,
            expected=header.file_bytes,
        )


# the shards of a folder


class ShardTable(Struct, frozen=True):
    """Shards of a folder, and what their files are known by."""

    shards: tuple[TokenShard, ...]
    key: str  # digest of the listing
    is_settled: bool  # no file is so young that its next version could have the same time


def find_shards(folder_or_pair: str, *, partial: bool) -> ShardTable:
    """Return the shards of a flat folder, or of one pair by either file, in the order of their numbers; see `open_ragged`."""
    url = files.normalize(folder_or_pair)
    folder, listed = url, _listed(url)
    if listed or files.local_path(url).is_dir():
        pairs = _pairs(folder, listed, partial)
    else:
        pairs = [RaggedNames(_stem(url))]
        folder = files.parent(url)
        listed = _listed_pair(folder, pairs[0])
    ours = [
        listed[name] for pair in pairs for name in (pair.data, pair.lengths, pair.sidecar) if name in listed
    ]
    key = xxhash.xxh3_128_hexdigest(msgspec.json.encode((VERSION, folder, ours)))
    is_settled = _are_settled(ours)

    def write(out: Any) -> None:
        out.write(_encoded(_read_shards(folder, pairs, listed)))

    shards = _decoded(cached(CACHE, f"{key}.shards", write, is_kept=is_settled))
    return ShardTable(shards, key, is_settled)


def _listed(url: str) -> dict[str, FileInfo]:
    return {info.path: info for info in files.list_flat(url)}


def _listed_pair(folder: str, names: RaggedNames) -> dict[str, FileInfo]:
    found = {
        name: files.stat(files.join(folder, name)) for name in (names.data, names.lengths, names.sidecar)
    }
    return {
        name: msgspec.structs.replace(info, path=name) for name, info in found.items() if info is not None
    }


def _stem(url: str) -> str:
    name = url.rpartition("/")[2]
    for suffix in (DATA, LENGTHS):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    raise UsageError(f"{url} is neither a folder nor the {DATA} or {LENGTHS} of a token shard", path=url)


def _are_settled(infos: Sequence[FileInfo]) -> bool:
    stamps = [info.stamp.partition(":") for info in infos]
    youngest = max((int(time) for kind, _, time in stamps if kind == "mtime"), default=0)
    return all(kind for kind, _, _ in stamps) and youngest < time.time_ns() - _SETTLED_SECONDS * 1e9


def _encoded(shards: Sequence[TokenShard]) -> bytes:
    return msgspec.msgpack.encode(shards, enc_hook=lambda dtype: dtype.str)


def _decoded(content: NDArray[np.uint8]) -> tuple[TokenShard, ...]:
    shards: tuple[TokenShard, ...] = msgspec.msgpack.decode(
        content.data, type=tuple[TokenShard, ...], dec_hook=lambda _, text: np.dtype(text)
    )
    return shards


def _pairs(folder: str, listed: Collection[str], partial: bool) -> list[RaggedNames]:
    pairs = [RaggedNames(name.removesuffix(DATA)) for name in listed if name.endswith(DATA)]
    if not partial:
        _check_left_over(folder, listed)
        _check_complete(folder, pairs)
    if not pairs:
        hint = _of_folders(folder) or _of_trainer(listed)
        raise UsageError(f"{folder} holds no *{DATA}, expected pairs of *{DATA} and *{LENGTHS}{hint}")
    return sorted(pairs, key=_order)


def _of_folders(folder: str) -> str:
    """Say which folders below hold shards."""
    names = files.list_folders(folder)
    below = [
        name for name in names if any(one.path.endswith(DATA) for one in files.list_flat(f"{folder}/{name}"))
    ]
    return f"; open one of its folders: {', '.join(below)}" if below else ""


def _of_trainer(names: Collection[str]) -> str:
    """Say which trainer the files are for, if they are not for this reader."""
    found = (name for name, form in FORMATS.items() if any(file.endswith(form.data) for file in names))
    name = next(found, None)
    return (
        f"; its files are of the format {name}, for other readers. Make pairs by ragged without --format"
        if name
        else ""
    )


def _order(names: RaggedNames) -> tuple[str, int]:
    numbered = names.numbered
    return (numbered[0], numbered[1]) if numbered else (names.stem, 0)


def _check_left_over(folder: str, names: Collection[str]) -> None:
    for name in sorted(names):
        if name.endswith(LENGTHS) and name.removesuffix(LENGTHS) + DATA not in names:
            raise CorruptFileError(
                f"{folder}/{name} is left over: its {DATA}, which is written last, does not exist, so the writer was"
                " interrupted or is still at work. Run it again, or open with partial=True to read the shards that"
                " are whole",
                path=f"{folder}/{name}",
            )


def _check_complete(folder: str, pairs: Sequence[RaggedNames]) -> None:
    sets: dict[tuple[str, int], set[int]] = {}
    for name, number, count in filter(None, (names.numbered for names in pairs)):
        sets.setdefault((name, count), set()).add(number)
    for (name, count), numbers in sorted(sets.items()):
        missing = sorted(set(range(count)) - numbers)
        if missing:
            raise CorruptFileError(
                f"{folder} holds {len(numbers)} of the {count} shards {name}.*-of-*; missing: {missing[:10]}. Run the"
                " writer again, or open with partial=True to read the shards that are there",
                folder=folder,
                missing=missing,
            )


# the head of each file


def _read_shards(
    folder: str, pairs: Sequence[RaggedNames], listed: Mapping[str, FileInfo]
) -> list[TokenShard]:
    shards = [_read_shard(folder, names, listed) for names in pairs]
    _check_types(shards)
    check_makers(shards)
    return shards


def _read_shard(folder: str, names: RaggedNames, listed: Mapping[str, FileInfo]) -> TokenShard:
    """Read and check the headers of one shard.

    Raises `CorruptFileError` if a file is missing, truncated or damaged, `AlignmentError` if the record describes other files.
    """
    ids = _read_header(folder, names.data, listed, "tokens")
    lengths = _read_header(folder, names.lengths, listed, "documents")
    has_record = names.sidecar in listed
    sidecar = _read_sidecar(files.join(folder, names.sidecar), ids, lengths) if has_record else None
    stamps = listed[names.data].stamp, listed[names.lengths].stamp
    return TokenShard(folder, names, ids, lengths, sidecar, stamps)


def _read_header(folder: str, name: str, listed: Mapping[str, FileInfo], what: str) -> NpyHeader:
    url = files.join(folder, name)
    if name not in listed:
        raise CorruptFileError(
            f"{url} does not exist; a token shard is a pair *{DATA} and *{LENGTHS}. Copy the missing file, or write"
            " the shard again",
            path=url,
        )
    with files.open_read(url, scattered=True) as file:
        header = parse_npy_header(file.read(min(_HEAD_BYTES, listed[name].bytes)), url)
    _check_size(url, listed[name].bytes, header, what)
    return header


def _read_sidecar(url: str, ids: NpyHeader, lengths: NpyHeader) -> RaggedSidecar:
    with files.open_read(url) as file:
        sidecar = parse_sidecar(file.read(MAX_SIDECAR_BYTES + 1), url)
    said = (sidecar.documents, sidecar.tokens, sidecar.dtype)
    found = (lengths.count, ids.count, ids.dtype.str)
    if said != found:
        raise AlignmentError(
            f"{url} describes (documents, tokens, type) {said}, the npy files hold {found}: they are not of one run;"
            " write the shard again",
            expected=said,
            found=found,
        )
    return sidecar


def _check_types(shards: Sequence[TokenShard]) -> None:
    _check_same("type", [(shard.ids.dtype.str, shard) for shard in shards])


def check_makers(shards: Sequence[TokenShard]) -> None:
    """Refuse ids of two vocabularies, which must not be read as one; shards without a record are taken on trust."""
    records = ((shard.sidecar.tokenizer, shard) for shard in shards if shard.sidecar is not None)
    makers = [((one.fingerprint, one.bos, one.eos), shard) for one, shard in records]
    _check_same("tokenizer fingerprint, bos, eos", makers)


def _check_same(what: str, values: Iterable[tuple[object, TokenShard]]) -> None:
    kinds: dict[object, TokenShard] = {}
    for value, shard in values:
        kinds.setdefault(value, shard)
    if len(kinds) > 1:
        (first, one), (second, other) = list(kinds.items())[:2]
        raise DataError(
            f"{one.data_url} has {what} {first}, {other.data_url} has {second}; shards that are read as one must come"
            " from one tokenizer and the same special tokens. Write them again, or keep them in two folders",
            found=[first, second],
        )
