"""Options of downsampling resolved against a dataset: columns of groups and of weights, and how documents are weighed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import run_job
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.columns import NUMERIC, Columns, find_columns
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.rules.downsampling import Downsampling
from dolma_dask.verbs.mix.downsampling import Draw, Measure
from dolma_dask.verbs.mix.drawn import DrawnTable

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.verbs.mix.tokens import TokenOptions


class DownsamplingRequest(Struct, frozen=True):
    """A mix's options of downsampling, resolved against a dataset."""

    wanted: Downsampling
    columns: Columns | None  # to read beside what the mix needs
    measure: Measure

    @classmethod
    def of(
        cls, dataset: Dataset, wanted: Downsampling, tokens: "TokenOptions | None", attributes: Sequence[str]
    ) -> "DownsamplingRequest":
        """Find the columns of groups and of weights.

        Raises `UsageError`: a column has not one value per document, or nothing counts tokens; `ExpressionError`: there is no such column.
        """
        engine, added = None, 0
        if wanted.unit == "tokens" and tokens is not None:
            engine, added = tokens.counted()
        column = None if wanted.unit in ("documents", "bytes") or engine is not None else wanted.unit
        names = list(dict.fromkeys(name for name in (wanted.by, column) if name is not None))
        if not names:
            return cls(wanted, None, Measure(wanted.unit, None, engine, added))
        columns = _find(dataset, names, attributes, column)
        full = dict(zip(names, columns.names, strict=True))
        _check_kinds(columns, full, wanted.by, column)
        by = None if wanted.by is None else full[wanted.by]
        measure = Measure(wanted.unit, None if column is None else full[column], engine, added)
        return cls(replace(wanted, by=by), columns, measure)

    def drawn(
        self, root: str, name: str, mixture: Mixture, options: RecordOptions
    ) -> tuple[Mixture, DrawnTable | None]:
        """Return a mix with the cuts of its groups, and what is kept of each; None in a rehearsal that does not know them."""
        job = Draw(root, name, mixture, self.wanted, self.measure, options.policy)
        table = run_job(job, options).table
        if table is None:
            return mixture, None
        return replace(mixture, recipe=replace(mixture.recipe, cuts=table.cuts())), table

    def notes(self, table: DrawnTable | None, shards: int, all_shards: int) -> Iterator[str]:
        """Yield what a person should know."""
        if table is None:
            yield "all documents would be ranked first, and the mix is shown without what downsampling leaves out"
            return
        if shards < all_shards:
            yield f"downsample: of {shards:,} of {counted(all_shards, 'shard')} alone"
        yield from table.notes(self.wanted.named)


def _find(dataset: Dataset, names: Sequence[str], attributes: Sequence[str], column: str | None) -> Columns:
    try:
        return find_columns(dataset, names, attributes)
    except ExpressionError as error:
        if column != "tokens":
            raise
        raise UsageError(
            f"{error}. Tokens are counted by the tokenizer of ragged or hdf5, if the mix makes such files, or stand in a column: name it as unit."
        ) from error


def _check_kinds(columns: Columns, full: Mapping[str, str], by: str | None, column: str | None) -> None:
    for name, value in columns.computed.items():
        raise UsageError(
            f"{name} is computed; expected a column that is stored, to downsample by it: {', '.join(sorted(value.names))}."
        )
    if by is not None and columns.kinds[full[by]] == "spans":
        raise UsageError(
            f"by={by!r} has many spans per document; expected one value per document, such as source."
        )
    if column is not None and columns.kinds[full[column]] not in NUMERIC:
        raise UsageError(
            f"unit={column!r} has no number per document; expected documents, bytes, tokens, or a column with a whole number per document."
        )
