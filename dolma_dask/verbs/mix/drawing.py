"""Options of downsampling and of budgets resolved against a dataset: columns of groups and of weights, and how documents are weighed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import run_job
from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.io import files
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.catalog import Catalog
from dolma_dask.reading.columns import NUMERIC, Columns, find_columns
from dolma_dask.reading.kept.transform import Mixture
from dolma_dask.rules.budget_words import budget
from dolma_dask.rules.budgets import TOKEN_COUNT, Budget, Wanted, unit_name
from dolma_dask.rules.downsampling import downsampling
from dolma_dask.verbs.mix.downsampling import Draw, Measure
from dolma_dask.verbs.mix.drawn import DrawnTable
from dolma_dask.verbs.mix.options import MixOptions

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.verbs.mix.tokens import TokenOptions


def wanted_by(options: MixOptions) -> Wanted:
    """Return what options want of each group.

    Raises `UsageError`: they do not say it as they should.
    """
    by, unit, seed = options.by, options.unit, options.seed
    if options.downsample is not None and options.downsamples:
        return downsampling(options.downsample, by, unit or "documents", seed)
    return budget(
        options.budget,
        options.tokens,
        options.max_epochs,
        by or "source",
        unit or TOKEN_COUNT,
        seed,
        is_trial=options.prune is not None,
    )


class DownsamplingRequest(Struct, frozen=True):
    """A mix's options of downsampling, resolved against a dataset."""

    wanted: Wanted
    columns: Columns | None  # to read beside what the mix needs
    measure: Measure
    told: tuple[str, ...] = ()  # for people, of the tokenizer

    @classmethod
    def of(
        cls, dataset: Dataset, wanted: Wanted, tokens: "TokenOptions | None", attributes: Sequence[str]
    ) -> "DownsamplingRequest":
        """Find the columns of groups and of weights.

        Raises `UsageError`: a column has not one value per document, nothing counts tokens, or tokens were counted with another tokenizer than that of
        the files; `ExpressionError`: there is no such column.
        """
        engine, added, told = None, 0, list[str]()
        of_files = isinstance(wanted, Budget) and unit_name(wanted.unit) == "tokens"
        if tokens is not None and (wanted.unit == "tokens" or of_files):
            engine, added = tokens.counted()
        engine = engine if wanted.unit == "tokens" else None
        column = None if wanted.unit in ("documents", "bytes") or engine is not None else wanted.unit
        names = list(dict.fromkeys(name for name in (wanted.by, column) if name is not None))
        if not names:
            return cls(wanted, None, Measure(wanted.unit, None, engine, added))
        columns = _find(dataset, names, attributes, column)
        full = dict(zip(names, columns.names, strict=True))
        _check_kinds(columns, full, wanted.by, column)
        if column is not None and of_files:
            told = list(_check_tokenizer(columns, full[column], tokens))
        unit = full[column] if column == TOKEN_COUNT else wanted.unit
        by = None if wanted.by is None else full[wanted.by]
        measure = Measure(unit, None if column is None else full[column], engine, added)
        return cls(replace(wanted, by=by, unit=unit), columns, measure, tuple(told))

    def drawn(
        self, root: str, name: str, mixture: Mixture, options: RecordOptions
    ) -> tuple[Mixture, DrawnTable | None]:
        """Return a mix with the cuts of its groups, and what is kept of each; None in a rehearsal that does not know them."""
        job = Draw(root, name, mixture, self.wanted, self.measure, options.policy)
        try:
            table = run_job(job, options).table
        except UsageError:
            files.remove_empty(root)  # where nothing was before
            raise
        if table is None:
            return mixture, None
        return replace(mixture, recipe=replace(mixture.recipe, cuts=table.cuts())), table

    def notes(self, table: DrawnTable | None, shards: int, all_shards: int) -> Iterator[str]:
        """Yield what a person should know."""
        yield from self.told
        if table is None:
            yield "all documents would be ranked first, and the mix is shown without what that leaves out or takes several times"
            return
        if shards < all_shards:
            yield f"{table.what}: of {shards:,} of {counted(all_shards, 'shard')} alone"
        yield from table.notes(self.wanted.named)


def _find(dataset: Dataset, names: Sequence[str], attributes: Sequence[str], column: str | None) -> Columns:
    try:
        return find_columns(dataset, names, attributes)
    except ExpressionError as error:
        if error.details.get("name") == TOKEN_COUNT:
            raise UsageError(
                f"{str(error).partition(';')[0]}. A budget counts by the tokens of each document. Count them with the tokenizer that will be used, dolma-dask tag {dataset.root} "
                "--taggers tokens --tokenizer NAME, or name in `unit` what counts: a column, or tokens for the tokenizer of ragged or hdf5 of this mix, "
                "which then encodes all texts twice."
            ) from error
        if column != "tokens":
            raise
        raise UsageError(
            f"{error}. Tokens are counted by the tokenizer of ragged or hdf5, if the mix makes such files, or stand in a column: name it as unit."
        ) from error


def _check_tokenizer(columns: Columns, column: str, tokens: "TokenOptions | None") -> Iterator[str]:
    """Refuse token files of another tokenizer than the one that made a column, and a column of several; yield what cannot be told."""
    if columns.sets is None or column not in columns.sets.columns:
        return
    makers = Catalog(columns.dataset).tokenizers(*columns.sets.columns[column])
    known = [one for one in makers if one]
    if len(known) > 1:
        raise UsageError(
            f"{column} was counted with {len(known)} tokenizers; expected one. Count anew: dolma-dask tag {columns.dataset.root} "
            "--taggers tokens --tokenizer NAME --overwrite."
        )
    if tokens is None:
        return
    for one in known:
        tokens.check_counted(column, one)
    if len(known) < len(makers):
        yield f"no journal says with which tokenizer {column} was counted; the budget takes it to be that of the files"
    yield from tokens.notes


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
