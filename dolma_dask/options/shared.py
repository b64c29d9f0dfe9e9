"""The keyword arguments that all verbs share, defined once for Python and the command line, and what is refused of them.

Python does not check literals, keys of an open dictionary or types; without these checks a misspelled ``dry_run`` would write.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
from cyclopts import Parameter

from dolma_dask.dataset import Dataset, open_dataset, version_root
from dolma_dask.display import counted, near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import NAMED_MEMBERS, OnBadRecord, RecordPolicy
from dolma_dask.journal import Record, check_budget
from dolma_dask.options.run import RunOptions
from dolma_dask.results.summary import Summary
from dolma_dask.rules.rules import Rule

Many = Parameter(consume_multiple=True, negative="", show_default=False)
"""A list on the command line: ``--taggers a b`` or the option repeated."""

DatasetLike = str | Dataset | Summary
"""A folder or URL, an open dataset, or the summary of the verb that wrote it."""

TokensLike = str | Mapping[str, Any] | None
"""Options of `ragged` or `hdf5` of a mix, ``to`` and ``tokenizer`` among them, also as JSON text."""

RuleLike = str | Rule | None
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
    share: Annotated[
        str,
        Parameter(
            help="Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on."
        ),
    ]
    prune: Annotated[int, Parameter(help="Only the first N shards, to try a command.")]
    overwrite: Annotated[
        bool,
        Parameter(
            help="Do everything again, and replace what is there: of other options too, or not made by this tool.",
            negative="",
        ),
    ]
    dry_run: Annotated[bool, Parameter(help="Say what would be done, and do nothing.", negative="")]
    scheduler: Annotated[
        str,
        Parameter(
            help="auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler."
        ),
    ]
    workers: Annotated[int, Parameter(help="Processes or threads; by default one per processor.")]
    cluster: Annotated[
        str,
        Parameter(
            help="Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`."
        ),
    ]
    progress: Annotated[bool, Parameter(help="Show a progress bar.")]


class RecordArgs(RunArgs, total=False):
    """`RunArgs`, and what happens to records that cannot be read."""

    on_bad_record: Annotated[
        OnBadRecord,
        Parameter(
            help="Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes."
        ),
    ]
    max_record_bytes: Annotated[
        int,
        Parameter(
            help="Longer lines are bad records, and Parquet pages that need more are refused; by default 64,000,000 bytes."
        ),
    ]


class ReadArgs(RecordArgs, total=False):
    """`RecordArgs`, and how many records may be left out; for verbs that leave them out."""

    max_bad_fraction: Annotated[
        float,
        Parameter(
            help="Share of all rows that may be quarantined before the run fails; by default 0.01. Up to it the exit status is 0, and the summary tells how many they are."
        ),
    ]


Args = TypeVar("Args", bound=RunArgs)


def checked(verb: Callable[..., object], args: Args, known: type[Args]) -> Args:
    """Return the shared arguments of a call of `verb`, which it does not name itself, ``only`` as a tuple.

    Raises `UsageError`: a key is none of `known`, or ``only`` has nothing in it.
    """
    names = list(known.__annotations__)
    for name in args:
        if name not in names:
            own = inspect.signature(verb).parameters.values()
            kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            every = [*(item.name for item in own if item.kind in kinds), *names]
            raise UsageError(
                f"{verb.__name__}() takes no argument {name!r}; {near_or_all(name, every)}", name=name
            )
    if "only" not in args:
        return args
    checked_args = args.copy()
    checked_args["only"] = words_of("only", args["only"])
    if not checked_args["only"]:
        raise _nothing("only")
    return checked_args


def _nothing(name: str) -> UsageError:
    return UsageError(
        f"`{name}` was given with nothing in it; expected one value or more. Leave it out to mean the default."
    )


def words_of(name: str, value: Sequence[str] | str, may_be_empty: bool = False) -> tuple[str, ...]:
    """Return a list of words as a tuple, for the argument `name`; a single word is a list of one, an empty tuple an argument that was not given.

    Raises `UsageError`: a list (unless it may be empty) or a word is empty, or something else than words was given.
    """
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{name}={value!r}; expected words, such as {name}=['a', 'b'].")
    if (isinstance(words, list) and not words and not may_be_empty) or not all(words):
        raise _nothing(name)
    return tuple(words)


def from_json(what: str, given: str | Mapping[str, Any], expected: str) -> Mapping[str, Any]:
    """Return options by name, which the command line gives as JSON text."""
    if isinstance(given, Mapping):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (*NOT_JSON, TypeError) as error:
        raise UsageError(f"cannot read {what} {given!r}: {error}; expected {expected}") from None


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is none of `choices`."""
    if value not in choices:
        raise UsageError(f"{name}={value!r}; expected one of {', '.join(choices)}.")


def check_format(file_format: FileFormat | None) -> None:
    """Refuse a format that no writer knows."""
    if file_format is not None:
        check_choice("format", file_format, layout.FORMATS)


def rule_of(where: object) -> str | Rule | None:
    """Return a rule as verbs take it: an expression, a rule, or of thresholds and summaries with thresholds the rule to be inside of them.

    Raises `UsageError`: it is of another type.
    """
    inside = getattr(where, "inside", None)
    rule = inside() if callable(inside) else where
    if isinstance(rule, Rule):
        rule.check_depth()
    if rule is None or isinstance(rule, str | Rule):
        return rule
    raise UsageError(
        f"where={where!r} is of type {type(where).__name__}; expected an expression such as 'word_count >= 50', or rules "
        "joined by & | ~."
    )


def run_options(args: RunArgs) -> RunOptions:
    """Return what the engine takes."""
    names = ("overwrite", "dry_run", "scheduler", "workers", "cluster", "progress")
    return RunOptions(**{name: args[name] for name in names if name in args})  # type: ignore[literal-required]


def record_policy(args: RecordArgs) -> RecordPolicy:
    """Return what readers and the quarantine take."""
    names = ("on_bad_record", "max_bad_fraction", "max_record_bytes")
    return RecordPolicy(**{name: args[name] for name in names if name in args})  # type: ignore[literal-required]


def budget(policy: RecordPolicy) -> float:
    """Return the share of bad rows that a run may end with."""
    return policy.max_bad_fraction if policy.on_bad_record == "quarantine" else 0.0


def target_of(to: object) -> str:
    """Return the path or URL of a file to write; refuse what is neither."""
    if not isinstance(to, str | PathLike):
        raise UsageError(f"to={to!r} is of type {type(to).__name__}; expected the path or URL of a file.")
    return str(fspath(to))


def as_dataset(dataset: DatasetLike, source: str | None = None, version: str | None = None) -> Dataset:
    """Return a dataset for a URL, a dataset, or the summary of the verb that wrote it; refuse one that is over its budget of bad records."""
    dataset = of_version(dataset, source, version)
    if isinstance(dataset, Dataset):
        check_budget(dataset.root)
        return dataset.with_current_attributes()
    if not isinstance(dataset, str | PathLike | Summary):
        raise UsageError(
            f"the dataset is of type {type(dataset).__name__}; expected a folder or URL, an open dataset, or the summary of a verb."
        )
    opened = open_dataset(dataset.target if isinstance(dataset, Summary) else fspath(dataset), source=source)
    check_budget(opened.root)
    return opened


def of_version(dataset: DatasetLike, source: str | None, version: str | None) -> DatasetLike:
    """Return the root of the dataset that `version` of a source names; without a version `dataset` itself."""
    if version is None:
        return dataset
    if not isinstance(dataset, str | PathLike):
        raise UsageError(
            "`version` is of a root with sources/<source>/<version> in it; expected the path or URL of that root."
        )
    return version_root(fspath(dataset), source, version)


NO_SHARD = "no shard is left to read: a share may be empty where there are fewer shards than shares"
"""What a person is told of a call that has nothing to read."""


def selected(dataset: Dataset, args: RunArgs) -> Dataset:
    """Return the shards that ``only``, ``share`` and ``prune`` leave."""
    return dataset.select(tuple(args.get("only", ())), args.get("prune"), args.get("share"))


def skipped_notes(records: Iterable[Record]) -> Iterator[str]:
    """Name members of archives that hold no records; `records` know their number and the first names."""
    known = [record for record in records if "skipped_members" in record.info]
    names = [name for record in known for name in record.info["skipped_members"]]
    count = int(sum(record.counts["skipped_members"] for record in known))
    if count:
        more = f" and {count - NAMED_MEMBERS:,} more" if count > NAMED_MEMBERS else ""
        yield f"{counted(count, 'member')} of archives skipped, no file of records: {', '.join(names[:NAMED_MEMBERS])}{more}"


def check_outside(target: str, *roots: str) -> None:
    """Refuse other files among the documents and attributes of datasets, where readers would take them for such."""
    for root in roots:
        folders = [files.resolved(files.join(root, name)) for name in (layout.DOCUMENTS, layout.ATTRIBUTES)]
        if any(f"{files.resolved(target)}/".startswith(f"{folder}/") for folder in folders):
            raise UsageError(
                f"{target} lies among the documents or attributes of {root}; expected another folder or URL."
            )


def without_empty(args: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run for the journal and the report: those that were given."""
    return {name: value for name, value in args.items() if value not in (None, (), [], {})}
