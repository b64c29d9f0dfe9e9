"""lengths: how many tokens the documents of token shards have, from their lengths alone, and what a sequence length makes of them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.display import counted, integer, percent
from dolma_dask.engine import Input
from dolma_dask.engine.fold import added, fold
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.loaders.shards import TokenShard
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import QuestionOptions
from dolma_dask.options.pictures import PictureOptions
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Part
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.text.kernels import Counts
from dolma_dask.tokens.packing import count_segments, stream_rows

if TYPE_CHECKING:
    import pandas as pd

SEQ_LENGTHS = (512, 1024, 2048, 4096)
"""Sequence lengths that are shown if none are given."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

ALL = "all"
"""Name of the group of all documents."""

MIN_TOKENS = 2
"""Tokens of the shortest row: one to read and one to predict."""


class TokenCounts(Struct, frozen=True, eq=False):
    """Documents by their number of tokens."""

    values: Counts  # (n,) ascending, each once
    documents: Counts  # (n,)

    @classmethod
    def of(cls, lengths: npt.NDArray[np.integer[Any]]) -> "TokenCounts":
        """Count documents."""
        values, documents = np.unique(lengths.astype(np.int64), return_counts=True)
        return cls(values, documents.astype(np.int64))

    def __add__(self, other: "TokenCounts") -> "TokenCounts":
        values, place = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        documents = np.zeros(len(values), np.int64)
        np.add.at(documents, place, np.concatenate([self.documents, other.documents]))
        return TokenCounts(values, documents)

    @property
    def number(self) -> int:
        """Number of documents."""
        return int(self.documents.sum())

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return int((self.values * self.documents).sum())

    def quantile(self, probability: float) -> int | None:
        """Return the smallest length that this share of the documents does not exceed."""
        if not len(self.values):
            return None
        total = np.cumsum(self.documents)
        return int(self.values[np.searchsorted(total, max(1, int(np.ceil(probability * total[-1]))))])

    def histogram(self) -> Histogram:
        """Return the lengths in bins that can be drawn."""
        return Histogram.of_counts(self.values.astype(np.float64), self.documents)


class LengthFile(Struct, frozen=True):
    """The lengths of a token shard, as a file to read."""

    shard: TokenShard

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.shard.names.lengths

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The file, if it is there still."""
        url = self.shard.lengths_url
        info = files.stat(url)
        return (Input(url, info),) if info else ()


class CountLengths(Struct, frozen=True):
    """Counts the documents of token shards by length; see `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "lengths"

    def start(self) -> "Lengths":
        """Return the counts of no shards."""
        return Lengths()

    def count(self, file: LengthFile) -> "Lengths":
        """Count one shard under the folder of its documents."""
        return Lengths({_group(file.shard): TokenCounts.of(file.shard.read_lengths())})


def _group(shard: TokenShard) -> str:
    """Return the first folder of the documents that the tokens are of, else what the file is named after."""
    path = shard.sidecar.source.path if shard.sidecar and shard.sidecar.source else ""
    inner = path.removeprefix(f"{layout.DOCUMENTS}/")
    if "/" in inner:
        return inner.partition("/")[0]
    numbered = shard.names.numbered
    return numbered[0] if numbered else shard.names.stem


class Lengths(Answer, frozen=True, dict=True):
    """Numbers of tokens of documents; prints as a table by group.

    Attributes
    ----------
    groups : Mapping
        First folder of the documents, or the name of the token shards, to the counts of its documents.
    """

    groups: Mapping[str, TokenCounts] = {}

    def __add__(self, other: "Lengths") -> "Lengths":
        return Lengths(dict(sorted(added(self.groups, other.groups).items())))

    @cached_property
    def all(self) -> TokenCounts:
        """Counts of all documents."""
        none = np.zeros(0, np.int64)
        return sum(self.groups.values(), TokenCounts(none, none))

    @property
    def documents(self) -> int:
        """Number of documents."""
        return self.all.number

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return self.all.tokens

    def frame(self) -> "pd.DataFrame":
        """Return documents, tokens and quantiles of the lengths by group, the group "all" first."""
        import pandas as pd

        return pd.DataFrame([self._row(name, counts) for name, counts in self._parts()]).set_index("group")

    def _parts(self) -> list[tuple[str, TokenCounts]]:
        own = list(self.groups.items())
        return [(ALL, self.all), *(own if len(own) > 1 else [])]

    def _row(self, name: str, counts: TokenCounts) -> dict[str, Any]:
        quantiles = {f"p{100 * share:g}_tokens": counts.quantile(share) for share in QUANTILES}
        longest = int(counts.values[-1]) if len(counts.values) else None
        return {
            "group": name,
            "documents": counts.number,
            "tokens": counts.tokens,
            **quantiles,
            "max_tokens": longest,
        }

    def plot(self, seq_lengths: Sequence[int] = SEQ_LENGTHS) -> Figure:
        """Return the histogram of the lengths, with sequence lengths as dashed lines.

        Parameters
        ----------
        seq_lengths : sequence of int
            Tokens of a row.
        """
        chosen = _checked(seq_lengths)
        signal = signal_histogram(
            "tokens in a document", self.all.histogram(), None, [("=", float(n)) for n in chosen]
        )
        cut = [
            f"{percent(int(row['cut_documents']), self.documents)} of {row['seq_length_tokens']:,}"
            for row in self._waste(chosen)
        ]
        note = f"{counted(self.documents, 'document')}, {integer(self.tokens)} tokens"
        return Figure(
            "Tokens in a document",
            (signal,),
            "tokens in a document",
            (note, f"longer than a row: {', '.join(cut)}"),
        )

    def waste(self, seq_lengths: Sequence[int] = SEQ_LENGTHS) -> "pd.DataFrame":
        """Return what sequence lengths make of the documents: rows, padding, and documents that are cut.

        Parameters
        ----------
        seq_lengths : sequence of int
            Tokens of a row.

        Returns
        -------
        pandas.DataFrame
            A row for each, with these columns:

            - ``seq_length_tokens``: L.
            - ``rows_of_documents``: rows if none holds more than one document. A row has L tokens to read and the token after each of them to predict,
              as in `hdf5`; a document of n tokens fills (n - 1) / L rows, rounded up, and one of a single token none.
            - ``padding_of_documents``: share of the L tokens of these rows that are padding.
            - ``cut_documents``: documents of more than L + 1 tokens, which need several rows.
            - ``rows_packed``, ``padding_packed``: the same if all documents are one stream that is cut every L tokens, as `hdf5` packs by default;
              only the last row has padding.

        Notes
        -----
        Tokens are those of the files. `hdf5` puts one more, `eos`, behind each document, and unless they are packed leaves out texts shorter than
        `min_sequence_len`: make the token shards with ``eos=`` too for the same rows.
        """
        import pandas as pd

        return pd.DataFrame(self._waste(_checked(seq_lengths)))

    def _waste(self, seq_lengths: Sequence[int]) -> list[dict[str, Any]]:
        return [_waste_of(self.all, length) for length in seq_lengths]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON-able values."""
        groups = [self._row(name, counts) for name, counts in self._parts()]
        return {"groups": groups, "waste": self._waste(SEQ_LENGTHS)}

    def parts(self) -> Iterator[Part]:
        rows = [self._row(name, counts) for name, counts in self._parts()]
        group, *numbers = (name.removesuffix("_tokens") for name in rows[0])
        columns = (Column(group, "name"), *map(Column, numbers))
        yield Table("tokens in a document", columns, [tuple(row.values()) for row in rows])
        waste = [tuple(row.values()) for row in self._waste(SEQ_LENGTHS)]
        yield Table("rows of a sequence length", _WASTE, waste)


_WASTE = (
    Column("sequence length"),
    Column("a row per document"),
    Column("padding", "share"),
    Column("documents cut"),
    Column("packed rows"),
    Column("padding", "share"),
)


def _checked(seq_lengths: Sequence[int]) -> tuple[int, ...]:
    for length in seq_lengths:
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise UsageError(f"seq_lengths: found {length!r}; expected numbers of tokens, such as 2048.")
    return tuple(seq_lengths)


def _waste_of(counts: TokenCounts, length: int) -> dict[str, Any]:
    predicted = np.maximum(counts.values - 1, 0)
    rows = int((count_segments(counts.values, length, MIN_TOKENS) * counts.documents).sum())
    packed = stream_rows(counts.tokens, length, "pad")
    return {
        "seq_length_tokens": length,
        "rows_of_documents": rows,
        "padding_of_documents": _padding(int((predicted * counts.documents).sum()), rows * length),
        "cut_documents": int(counts.documents[predicted > length].sum()),
        "rows_packed": packed,
        "padding_packed": _padding(max(counts.tokens - 1, 0), packed * length),
    }


def _padding(tokens: int, places: int) -> float:
    return 1 - tokens / places if places else 0.0


def _folder(tokens: Any) -> str:
    if isinstance(tokens, str | os.PathLike | Summary):
        return tokens.target if isinstance(tokens, Summary) else os.fspath(tokens)
    raise UsageError(
        f"tokens={tokens!r} is of type {type(tokens).__name__}; expected the folder that ragged wrote, or its summary."
    )


@dataclass(frozen=True, kw_only=True)
class LengthOptions(PictureOptions, QuestionOptions):
    """Options of `lengths`."""


@command
def lengths(
    tokens: Annotated[
        str | os.PathLike[str] | Summary,
        Opt("Local folder that ragged wrote, or one of its files.", kind="str or Summary", convert=_folder),
    ],
    /,
    *,
    options: LengthOptions,
) -> Lengths:
    """Count how many tokens the documents of token shards have; only the lengths beside the tokens are read.

    Example: dolma-dask lengths out/ragged --to lengths.svg

    Returns
    -------
    Lengths
        Prints as a table by folder of the documents; ``plot()`` is a histogram, and ``waste()`` tells what sequence lengths cost.

    Raises
    ------
    UsageError
        There are no ragged token shards. Rows of HDF5 files do not tell where documents begin and end: make token shards of the same documents
        with the same tokenizer by `ragged`.
    CorruptFileError
        A file is missing, truncated or damaged.

    Examples
    --------
    >>> found = dk.lengths("out/ragged")  # doctest: +SKIP
    >>> found.plot(seq_lengths=(2048,))  # doctest: +SKIP
    >>> found.waste((1024, 2048, 4096))  # doctest: +SKIP
    """
    folder = str(tokens)
    try:
        shards = open_ragged(folder).shards
    except UsageError as error:
        if not _holds_rows(folder):
            raise
        raise UsageError(
            f"{folder} holds rows of HDF5, which do not tell where documents begin and end; expected the folder of ragged token shards. Make "
            "them of the same documents: dolma-dask ragged DATASET FOLDER --tokenizer FILE, with the --eos of the rows."
        ) from error
    found = fold(CountLengths(), [LengthFile(shard) for shard in shards], options)
    if options.to is not None:
        options.save(found.plot())
    return found


def _holds_rows(folder: str) -> bool:
    path = files.local_path(folder).expanduser()
    return path.suffix == ".h5" or (path.is_dir() and any(path.glob("*.h5")))
