"""Rows of HDF5 of which documents are taken out: their tokens become padding, all others stay where they are.

Of a document's token at a position, the input, the label before it and whether either counts for the loss are masked (see `dolma_dask.formats.segments`); spans
and places are those of padding. The file is put together anew from its chunks, so that nothing of an old one stays between them; a row is a chunk, and only
those that change are deflated. Memory: a row, and the segments of a file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from isal import isal_zlib
from numpy.typing import NDArray

from dolma_dask.display import counted
from dolma_dask.formats.hdf5 import DATASET, DEFLATE_LEVEL, LM_FEATURES, PARAMS_NAME, ROWS_ATTRIBUTE, RowShape
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile
from dolma_dask.sinks.hdf5 import Hdf5Writer
from dolma_dask.verbs.remove.changes import Change, Work, Written
from dolma_dask.verbs.remove.token_files import Rewriting, identities_in, other_segments

Row = NDArray[np.int32]

_SHOWS_LAST = ("Summarization", "DPO", "FIM")
"""Modes in whose rows the last token of a run is an input too, where there is room."""

_ATTRIBUTES = (
    "mode",
    "features",
    "max_seq_length",
    "first_row",
    "tokenizer",
    "vocab_size",
    "pad_id",
    "eos_id",
)
"""Attributes of a file in the order in which they are written."""

_SIDE = len(LM_FEATURES)
"""Channels of an answer of a preference, and of any other row those before spans and places."""


class _Writer(Hdf5Writer):
    """Takes chunks as they are stored."""

    def copy(self, number: int, chunk: bytes) -> None:
        """Store the chunk of a row."""
        self._chunks.write_direct_chunk((number, 0, 0), chunk)
        self._rows += 1


class MaskedRows(Rewriting):
    """A file of rows, of which some are masked."""

    def renumbered(self, segments: pa.Table) -> pa.Table:
        """See `Rewriting`."""
        return segments

    def files(self, folder: str, kept: pa.Table) -> list[Change]:
        """See `Rewriting`."""
        import h5py  # type: ignore[import-untyped]

        source: Any = files.local_path(self.url) if files.is_local(self.url) else files.open_read(self.url)
        masked = dict(self._segments())
        sums = np.zeros(3, np.int64)
        with h5py.File(source, "r") as file:
            array, attributes = file[DATASET], _attributes_of(file)
            shape = RowShape(*array.shape)
            if max(masked) >= shape.rows:
                raise other_segments(
                    self.url, f"it has {shape.rows:,} rows, and they one of {max(masked) + 1:,}"
                )
            mask = _Masking(attributes, shape, self._unseen())
            with _Writer(folder, self.work.name, shape, attributes) as writer:
                for number in range(shape.rows):
                    if number in masked:
                        row, counts = mask(array[number], masked[number])
                        sums += counts
                        writer.copy(number, isal_zlib.compress(row, DEFLATE_LEVEL))
                    else:
                        writer.copy(number, array.id.read_direct_chunk((number, 0, 0))[1])
        pads, losses, ends = sums.tolist()
        return [
            msgspec.structs.replace(
                self.change(writer.record, "HDF5 rows", shape.rows),
                rows=tuple(sorted(masked)),
                identities=identities_in(self.segments, self.gone),
                counts={"pad_tokens": -pads, "loss_tokens": losses},
                row_counts={"pad_tokens": -pads, "loss_tokens": losses, "eos_tokens": ends},
                notes=(f"{counted(len(masked), 'row')} masked",),
            )
        ]

    def _segments(self) -> Iterator[tuple[int, list[tuple[int, int, int, bool]]]]:
        """Yield the rows that change with all of their segments: where their runs begin, their places and sizes, and whether they go."""
        rows = self.segments.column("row").to_numpy()
        columns = [self.segments.column(name).to_numpy() for name in ("first", "place", "size")]
        affected = np.isin(rows, rows[self.gone])
        by_row: defaultdict[int, list[tuple[int, int, int, bool]]] = defaultdict(list)
        for at in np.flatnonzero(affected).tolist():
            first, place, size = (int(column[at]) for column in columns)
            by_row[int(rows[at])].append((first, place, size, bool(self.gone[at])))
        yield from by_row.items()

    def _unseen(self) -> int:
        """Return the mask of a position that does not count for the loss."""
        try:
            params = msgspec.json.decode(
                files.read_bytes(files.join(self.root, f"{self.work.folder}/{PARAMS_NAME}".strip("/")))
            )
        except (FileNotFoundError, msgspec.DecodeError):
            return 0
        told = {
            name: value
            for section in params.values()
            if isinstance(section, dict)
            for name, value in section.items()
        }
        return 1 if told.get("inverted_mask") and not told.get("compat") else 0


def _attributes_of(file: Any) -> dict[str, Any]:
    known = {name: value for name, value in file.attrs.items() if name != ROWS_ATTRIBUTE}
    order = [*(name for name in _ATTRIBUTES if name in known), *sorted(known.keys() - set(_ATTRIBUTES))]
    return {name: _plain(known[name]) for name in order}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [str(item) for item in value.tolist()]
    return int(value) if isinstance(value, np.integer) else value


class _Masking:
    """Turns tokens of rows into padding."""

    def __init__(self, attributes: Mapping[str, Any], shape: RowShape, unseen: int) -> None:
        self.length, self.unseen = shape.length, unseen
        self.pad, self.eos = attributes["pad_id"], attributes.get("eos_id")
        self.shows_last = attributes.get("mode") in _SHOWS_LAST
        self.sides = range(0, shape.channels, _SIDE) if shape.channels % _SIDE == 0 else range(1)

    def __call__(
        self, row: Row, segments: Sequence[tuple[int, int, int, bool]]
    ) -> tuple[Row, NDArray[np.int64]]:
        """Return a row (channels, length) without the segments that go, and how many positions of ids, for the loss and ends of documents are fewer."""
        made = row.copy()
        inputs, labels = self._positions(segments)
        for side in self.sides:
            made[side, inputs] = self.pad
            made[side + 1, inputs | labels] = self.unseen
            made[side + 2, labels] = self.pad
        if len(row) > _SIDE and len(self.sides) == 1:
            made[_SIDE:, inputs] = 0
        return made, self._counts(row, made, inputs, segments)

    def _positions(
        self, segments: Sequence[tuple[int, int, int, bool]]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        inputs, labels = np.zeros(self.length, np.bool_), np.zeros(self.length, np.bool_)
        for first, place, size, is_gone in segments:
            if is_gone:
                inputs[place : self._end(first, place, size, segments)] = True
                labels[max(place - 1, first) : max(place + size - 1, 0)] = True
        return inputs, labels

    def _end(self, first: int, place: int, size: int, segments: Sequence[tuple[int, int, int, bool]]) -> int:
        """Return the position behind the last input of a segment: the last token of a run is a label alone, unless it stands in the row too and no other run begins there."""
        last = max(at + count for begin, at, count, _ in segments if begin == first) - 1
        is_input = self.shows_last and not any(begin == last for begin, *_ in segments)
        return min(place + size, self.length if is_input else last)

    def _counts(
        self,
        before: Row,
        after: Row,
        inputs: NDArray[np.bool_],
        segments: Sequence[tuple[int, int, int, bool]],
    ) -> NDArray[np.int64]:
        pads = ends = losses = 0
        for number, side in enumerate(self.sides):
            own = self._of_side(inputs, number, segments)
            pads += int(own.sum())
            ends += 0 if self.eos is None else int((before[side, own] == self.eos).sum())
            changed = before[side + 1] != after[side + 1]
            losses += int(changed.sum())
        return np.array([pads, losses, ends], np.int64)

    def _of_side(
        self, inputs: NDArray[np.bool_], number: int, segments: Sequence[tuple[int, int, int, bool]]
    ) -> NDArray[np.bool_]:
        """Return the inputs of one answer of a preference, whose segments are one for each answer; of other rows all."""
        if len(self.sides) == 1 or number >= len(segments):
            return inputs
        own = np.zeros(self.length, np.bool_)
        own[: min(segments[number][2], self.length)] = True
        return own


def renew_params(root: str, changes: Iterable[Change]) -> Iterator[Change]:
    """Write the counts anew of the folders in which rows were masked; yield the changes."""
    sums: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for change in changes:
        if change.what == "HDF5 rows":
            own = sums[change.path.rpartition("/")[0]]
            for name, count in change.row_counts.items():
                own[name] = own.get(name, 0) + count
    for folder, less in sorted(sums.items()):
        path = f"{folder}/{PARAMS_NAME}".strip("/")
        if files.stat(url := files.join(root, path)) is not None:
            yield Work(root).replace(path, "beside", partial(_write_params, url, less))


def _write_params(url: str, less: Mapping[str, int], out: PublishedFile) -> Written:
    params = msgspec.json.decode(files.read_bytes(url))
    pads, losses, ends = (less.get(name, 0) for name in ("pad_tokens", "loss_tokens", "eos_tokens"))
    for section, changes in (
        (
            "post-process",
            {
                "loss_valid_tokens": -losses,
                "non_pad_tokens": pads,
                "num_masked_tokens": losses,
                "num_pad_tokens": -pads,
            },
        ),
        ("h5_dataset_stats", {"loss_valid_tokens": -losses, "non_pad_tokens": pads + ends}),
    ):
        for name, change in changes.items():
            if name in params.get(section, {}):
                params[section][name] += change
    out.write(msgspec.json.format(msgspec.json.encode(params), indent=2) + b"\n")
    return Written(0, 0)
