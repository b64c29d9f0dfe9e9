"""Files that RedPajama-V2 publishes beside its documents: components and ids, and columns of its MinHash tables.

A file lies at ``<snapshot>/<shard>/<lang>_<bucket>`` with the suffix of its component, such as ``.minhash.parquet``, and its rows have the ids of
documents, ``<shard_id>/<row>`` (`shard_id` is the path of the file of documents, `row` its line from 0). A table may lack rows: documents whose records
could not be read, or that are no duplicates.

A row of a MinHash table has an id, the first eight bytes of its SHA-1, and the signature of 128 values four times: cut into bands for similarities of 1.0, 0.9, 0.8 and 0.7. A band is a binary of
big-endian uint32; the bands in a row are a prefix of the signature, so that ``signature_sim1.0`` holds everything. Signatures of documents
of fewer than 13 words are null.

Where `convert` has combined published files in a shard, its MinHash table may have the rows of all of them, one file after another. The metadata of the table lists
the files.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts
from dolma_dask.text.joined import parts_with_margin
from dolma_dask.text.kernels import Bools, Counts, Words
from dolma_dask.text.sha1 import sha1_words

BANDS = {
    "signature_sim1.0": (1, 128),
    "signature_sim0.9": (5, 25),
    "signature_sim0.8": (9, 13),
    "signature_sim0.7": (14, 9),
}
"""Bands, and values of a band, of each column of signatures."""

NUM_PERM = 128
"""Values of a signature."""

GROUP_ROWS = 5000
"""Rows of a row group."""

_SHOWN = 300
"""Characters of an id that an error repeats."""

MINHASH_SCHEMA = pa.schema(
    [
        ("shard_id", pa.string()),
        ("id", pa.string()),
        ("id_int", pa.uint64()),
        *((name, pa.list_(pa.binary())) for name in BANDS),
    ]
)

_PLACES = b"published_files"
"""Key of the metadata of a table that has the rows of several published files."""

DUPLICATES_SCHEMA = pa.schema([(name, pa.string()) for name in ("shard_id", "doc_id", "digest")])


class Component(Struct, frozen=True):
    """A kind of files that are published beside those of the documents, a table for each."""

    name: str  # its folder, as published
    suffixes: tuple[str, ...]  # of its files, the published one first
    called: str  # what one of its files is
    advice: str  # for a table that is not there

    def path(self, shard: str) -> str:
        """Return the table of a shard of documents, below the folder of all tables, as it is published."""
        return layout.stem_of(shard) + self.suffixes[0]

    def candidates(self, shard: str) -> list[str]:
        """Return where the table of a shard may lie, the best place first; a part of a raw file may share the table of the whole."""
        stems = dict.fromkeys((*own_stems(shard), *own_stems(layout.unit_of(shard))))
        return [stem + suffix for stem in stems for suffix in self.suffixes]


def own_stems(shard: str) -> list[str]:
    """Return the names of the table of a shard without its suffix: as the shard, or without the folders above those that are published."""
    stem = layout.stem_of(shard)
    return list(dict.fromkeys((stem, "/".join(stem.split("/")[-3:]))))


_LEAVE_OUT = "Fetch it, or attach its documents without values: --missing null."

MINHASH = Component(
    "minhash",
    (".minhash.parquet",),
    "MinHash table",
    "Fetch it, or make all tables: dolma-dask sign DATASET FOLDER.",
)
QUALITY_SIGNALS = Component(
    "quality_signals",
    (".signals.json.gz", ".signals.json.zst", ".signals.json"),
    "table of quality signals",
    _LEAVE_OUT,
)
DUPLICATES = Component("duplicates", (".duplicates.parquet",), "table of duplicates", _LEAVE_OUT)

_VALUE_BYTES = 4

Values = npt.NDArray[np.uint32]


def minhash_columns(shard_id: str, rows: Counts, values: Values, valid: Bools) -> list[pa.Array]:
    """Return the columns of `MINHASH_SCHEMA` for documents with these row numbers (n,): their signatures (n, `NUM_PERM`), null where not `valid`.

    Raises `UsageError`: signatures have another number of values.
    """
    if values.shape[1] != NUM_PERM:
        raise UsageError(
            f"signatures of {values.shape[1]} values; expected {NUM_PERM}, as the tables of RedPajama-V2 have them. Sign with num_perm={NUM_PERM}."
        )
    ids = _joined_ids(shard_id, rows)
    signatures = [_banded(values, valid, *shape) for shape in BANDS.values()]
    return [pa.repeat(pa.scalar(shard_id), len(rows)), ids, pa.array(id_numbers(ids)), *signatures]


def duplicate_columns(shard_id: str, rows: Counts, digests: pa.Array) -> list[pa.Array]:
    """Return the columns of `DUPLICATES_SCHEMA` for documents with these row numbers and digests (n,); a digest has no ``sha1:`` there."""
    plain = pc.replace_substring_regex(digests, r"^sha1:", "").cast(pa.string())
    return [pa.repeat(pa.scalar(shard_id), len(rows)), _joined_ids(shard_id, rows), plain]


def id_numbers(ids: pa.Array) -> Words:
    """Return the first eight bytes of the SHA-1 of each id (n,), as little-endian numbers."""
    offsets, data = parts_with_margin(ids)
    return sha1_words(data, offsets[:-1], offsets[1:])


class RisingIds:
    """Ids of one shard as they are read; `where` names their file in errors."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._last = -1
        self._shard_id = ""

    def split(self, ids: pa.Array) -> tuple[str, Counts]:
        """Return the shard and the row numbers (n,) of the next ids, of which there is one or more.

        Raises `DataError`: ids have no row number, are of another shard than those before them, or their numbers do not rise.
        """
        shard_id, rows = _split_ids(ids, self._where)
        if self._shard_id not in ("", shard_id):
            raise _of_other_shard(
                self._where, ids[0].as_py(), f"{self._shard_id}/{self._last}", self._shard_id
            )
        falls = np.diff(rows, prepend=self._last) <= 0
        if falls.any():
            at = int(falls.argmax())
            before = rows[at - 1] if at else self._last
            raise DataError(
                f"{self._where}: id {_shown(ids[at])} comes after row {before}; expected row numbers that rise, as published. Sort the rows by "
                "them.",
                url=self._where,
            )
        self._shard_id, self._last = shard_id, int(rows[-1])
        return shard_id, rows


class RisingPlaces:
    """Ids of published files, those of a file together and in its order; `where` names the table or the shard in errors."""

    def __init__(self, where: str, listed: Sequence[str] | None = None) -> None:
        """Expect the files that are `listed`, in this order, or any."""
        self._where = where
        self._left = None if listed is None else iter(listed)
        self._known: set[str] = set()
        self._place = ""
        self._ids = RisingIds(where)

    def parts(self, ids: pa.Array) -> Iterator[tuple[int, int, str, Counts]]:
        """Yield where the next ids of a file begin and end, the name of the file, and its row numbers.

        Raises `DataError`: as `RisingIds.split`, or the ids of a file do not stand together, or it is not listed.
        """
        for start, stop, place in runs_of_places(ids):
            if place and place != self._place:
                self._begin(place)
            yield start, stop, *self._ids.split(ids.slice(start, stop - start))

    def _begin(self, place: str) -> None:
        if place in self._known or (self._left is not None and place not in self._left):
            raise DataError(
                f"{self._where}: documents of {place[:_SHOWN]} stand before and behind others, or are not listed; expected those of each published file "
                "together. Convert the files anew, or make the table again: dolma-dask sign.",
                url=self._where,
            )
        self._known.add(place)
        self._place, self._ids = place, RisingIds(self._where)


def runs_of_places(ids: pa.Array) -> Iterator[tuple[int, int, str | None]]:
    """Yield where neighbouring documents of one published file begin and end, and its name in their ids; documents that could not be read go with those before them."""
    places = pc.replace_substring_regex(ids, r"/[^/]*$", "").dictionary_encode()
    names = places.dictionary.to_pylist()
    codes = pc.fill_null(pc.fill_null_forward(places.indices), -1).to_numpy(zero_copy_only=False)
    firsts = np.flatnonzero(np.diff(codes, prepend=-2)).tolist()
    for start, stop in pairwise([*firsts, len(ids)]):
        yield start, stop, None if codes[start] < 0 else names[codes[start]]


def listed_places(metadata: Mapping[bytes, bytes] | None, where: str) -> tuple[str, ...]:
    """Return the published files whose rows a table has, in order, as its metadata lists them; nothing: it is of one.

    Raises `DataError`: the metadata holds no list of names; the message names the table `where`.
    """
    found = (metadata or {}).get(_PLACES, b"[]")
    try:
        return msgspec.json.decode(found, type=tuple[str, ...])
    except ValueError as error:
        raise DataError(
            f"{where}: {found[:_SHOWN]!r} under {_PLACES.decode()} in its metadata ({error}); expected a list of published files. Make it again: dolma-dask sign.",
            url=where,
        ) from error


def places_metadata(places: Sequence[str]) -> Mapping[bytes, bytes]:
    """Return the metadata of a table with the rows of these published files."""
    return {_PLACES: msgspec.json.encode(places)}


def _shown(found: pa.Scalar) -> str:
    """Return an id as errors show it; a hostile one may have megabytes."""
    return repr(found.as_py() if not found.is_valid else found.as_py()[:_SHOWN])


def _without_number(where: str, found: pa.Scalar) -> DataError:
    return DataError(
        f"{where}: id {_shown(found)} has no row number; expected ids as 2023-06/0000/en_head.json.gz/17, of documents and tables of RedPajama-V2.",
        url=where,
    )


def _of_other_shard(where: str, found: str, other: str, shard_id: str) -> DataError:
    return DataError(
        f"{where}: id {found[:_SHOWN]!r} beside {other[:_SHOWN]!r}; expected ids of one shard, and rows as plain numbers: {shard_id[:_SHOWN]}/17. RedPajama-V2 has a table "
        "for each shard. Of files that were combined there are MinHash tables alone, made by dolma-dask sign; make others of files that are not.",
        url=where,
    )


def _split_ids(ids: pa.Array, url: str) -> tuple[str, Counts]:
    rows = _row_numbers(ids, url)
    shard_id, slash, _ = ids[0].as_py().rpartition("/")
    if not slash:
        raise _without_number(url, ids[0])
    known = _joined_ids(shard_id, rows)
    same = pc.equal(ids.cast(known.type), known)
    if not pc.all(same).as_py():
        row = pc.index(same, False).as_py()
        raise _of_other_shard(url, ids[row].as_py(), ids[0].as_py(), shard_id)
    return shard_id, rows


def _joined_ids(shard_id: str, rows: Counts) -> pa.StringArray:
    numbers = pa.array(rows, pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(shard_id), numbers, "/")


def _row_numbers(ids: pa.Array, url: str) -> Counts:
    """Return the row numbers (n,) at the end of ids. Raises `DataError`: an id has none; the message names `url`."""
    tails = pc.replace_substring_regex(ids, r"^.*/", "")
    is_number = pc.fill_null(pc.match_substring_regex(tails, r"^[0-9]{1,18}$"), False)
    if not pc.all(is_number).as_py():
        raise _without_number(url, ids[pc.index(is_number, False).as_py()])
    return np.asarray(tails.cast(pa.int64()))


def _banded(values: Values, valid: Bools, bands: int, rows_per_band: int) -> pa.ListArray:
    """Return the bands of each signature as binaries, null where not `valid`."""
    data = np.ascontiguousarray(values[valid, : bands * rows_per_band], ">u4")
    size = rows_per_band * _VALUE_BYTES
    offsets = np.arange(data.nbytes // size + 1, dtype=np.int32) * np.int32(size)
    binaries = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(valid, dtype=np.int32)]) * np.int32(bands)
    return pa.ListArray.from_arrays(pa.array(ends), binaries, mask=pa.array(~valid))


def signature_values(column: pa.ListArray, name: str, url: str) -> tuple[Values, Bools]:
    """Return the first values of each signature, uint32 (n, bands * rows_per_band) by `BANDS`, and which rows (n,) have one; others are 0.

    Raises `DataError`: bands have another number or size than those of a column of this name; the message names `url`.
    """
    bands, rows_per_band = BANDS[name]
    valid = np.asarray(column.is_valid())
    binaries = column.flatten()
    counts = pc.drop_null(pc.list_value_length(column)).unique().to_pylist()
    sizes = pc.binary_length(binaries).unique().to_pylist()
    size = rows_per_band * _VALUE_BYTES
    if not {*counts} <= {bands} or not {*sizes} <= {size}:
        raise DataError(
            f"{url}: {name} has signatures of {counts} bands of {sizes} bytes; expected {bands} of {size}, as RedPajama-V2 has them. "
            "It was made with other options, or is another kind of table.",
            url=url,
            column=name,
        )
    values = np.zeros((len(column), bands * rows_per_band), np.uint32)
    if valid.any():
        offsets, data = string_parts(binaries.cast(pa.large_binary()))
        values[valid] = data[offsets[0] : offsets[-1]].view(">u4").reshape(-1, values.shape[1])
    return values, valid
