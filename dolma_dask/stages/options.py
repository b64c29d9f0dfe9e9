"""The keyword arguments that all verbs share, defined once for Python and the command line."""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from cyclopts import Parameter

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.engine import RunOptions
from dolma_dask.io.quarantine import OnBadRecord, RecordPolicy
from dolma_dask.mixing.rules import Rule
from dolma_dask.summary import Summary

Many = Parameter(consume_multiple=True, negative="")
"""A list on the command line: ``--taggers a b`` or the option repeated."""


def _as_typed(_: Any, tokens: Sequence[Any]) -> str:
    """Take a word of the command line as it stands: Python also takes objects in its place."""
    return str(tokens[0].value)


def _as_listed(_: Any, tokens: Sequence[Any]) -> list[str]:
    return [str(token.value) for token in tokens]


Word = Parameter(converter=_as_typed, n_tokens=1, accepts_keys=False)
"""One word on the command line, an object from Python."""

Words = Parameter(converter=_as_listed, n_tokens=1, accepts_keys=False, consume_multiple=True, negative="")
"""A list of them."""

DatasetLike = Annotated[str | Dataset | Summary, Word]
"""A folder or URL, an open dataset, or the summary of the verb that wrote it."""

RuleLike = Annotated[str | Rule | None, Word]
"""An expression, or rules joined by ``& | ~``."""


class RunArgs(TypedDict, total=False):
    """How a verb runs; nothing here changes a byte of its output, except which shards are made."""

    only: Annotated[
        Sequence[str],
        Parameter(
            help="Only shards whose path contains this, or matches it as a shell pattern.",
            consume_multiple=True,
            negative="",
        ),
    ]
    prune: Annotated[int, Parameter(help="Only the first N shards: a rehearsal.")]
    overwrite: Annotated[
        bool,
        Parameter(help="Do everything again, and replace files that this tool did not make.", negative=""),
    ]
    dry_run: Annotated[bool, Parameter(help="Tell what would be done, and do nothing.", negative="")]
    scheduler: Annotated[
        str,
        Parameter(
            help="synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler."
        ),
    ]
    workers: Annotated[int, Parameter(help="Processes or threads; by default one per processor.")]
    progress: Annotated[bool, Parameter(help="Show how far it is.")]


class ReadArgs(RunArgs, total=False):
    """`RunArgs`, and what happens to records that cannot be read."""

    on_bad_record: Annotated[
        OnBadRecord,
        Parameter(
            help="Fail the shard at the first bad record, or quarantine them with place, reason and bytes."
        ),
    ]
    max_bad_fraction: Annotated[
        float,
        Parameter(help="Share of all rows that may be quarantined before the run fails; by default 0.01."),
    ]
    max_record_bytes: Annotated[
        int, Parameter(help="Longer lines are bad records; by default 64,000,000 bytes.")
    ]


def run_options(args: RunArgs) -> RunOptions:
    """Return what the engine takes."""
    names = ("overwrite", "dry_run", "scheduler", "workers", "progress")
    return RunOptions(**{name: args[name] for name in names if name in args})  # type: ignore[literal-required]


def record_policy(args: ReadArgs) -> RecordPolicy:
    """Return what readers and the quarantine take."""
    names = ("on_bad_record", "max_bad_fraction", "max_record_bytes")
    return RecordPolicy(**{name: args[name] for name in names if name in args})  # type: ignore[literal-required]


def budget(policy: RecordPolicy) -> float:
    """Return the share of bad rows that a run may end with."""
    return policy.max_bad_fraction if policy.on_bad_record == "quarantine" else 0.0


def as_dataset(dataset: str | Dataset | Summary, source: str | None = None) -> Dataset:
    """Return a dataset for a URL, a dataset, or the summary of the verb that wrote it."""
    if isinstance(dataset, Dataset):
        return dataset.with_current_attributes()
    return open_dataset(dataset.target if isinstance(dataset, Summary) else dataset, source=source)


def selected(dataset: Dataset, args: RunArgs) -> Dataset:
    """Return the shards that ``only`` and ``prune`` leave."""
    return dataset.select(tuple(args.get("only", ())), args.get("prune"))


def dataset_notes(dataset: Dataset) -> tuple[str, ...]:
    """Return what a person should know of the listing."""
    if not dataset.ignored:
        return ()
    return (
        f"{len(dataset.ignored)} files below documents/ are no document files and were left out, first {dataset.ignored[0]}",
    )


def told(args: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run as the journal and the report show them."""
    return {name: value for name, value in args.items() if value not in (None, (), [], {})}
