"""what_if: which rule of some thresholds drops what, and what a stricter level would cost; nothing is written but a page, if one is wanted.

Attribute columns alone are read, in one pass; documents are opened where a column of theirs is needed (a group such as metadata.language) and for the
texts of examples.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Task
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.journal import dataset_notes
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import (
    DatasetOptions,
    RunOptions,
    ShardOptions,
    WithAttributes,
    check_outside,
    same,
    target_of,
)
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.questions.what_if.answer import WhatIf, answer_of
from dolma_dask.questions.what_if.conditions import split
from dolma_dask.questions.what_if.examples import with_excerpts
from dolma_dask.questions.what_if.ladder import LevelBounds, ThresholdsLike, find_ladder
from dolma_dask.questions.what_if.measure import (
    ASSUMED,
    TOKENS_PER_BYTE,
    check_ratio,
    find_length,
    measure_of,
    ratio_of,
    text_bytes_of,
)
from dolma_dask.questions.what_if.stage import CountStage, DropSums, count_tasks, sample_limits
from dolma_dask.reading.columns import Columns, find_columns
from dolma_dask.reading.selection import select
from dolma_dask.reading.signals import check_signal
from dolma_dask.reading.thresholds import check_name
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import check_seed
from dolma_dask.rules.thresholds import By, Thresholds

MAX_EXAMPLES = 20

FAILS = (
    "documents without a value count as dropped; mix and filter fail on the first of them, as nulls is fail"
)


def _page(to: object) -> str | None:
    page = None if to is None else target_of(to)
    if page is not None and not page.endswith(".html"):
        raise UsageError(f"to is {to!r}; expected the path or URL of a page that ends in .html.")
    return page


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions(DatasetOptions, ShardOptions):
    """Options of `what_if`."""

    where: Annotated[
        RuleLike,
        Opt(
            'In place of thresholds a rule, as in mix: its conditions such as "word_count >= 50" are the rules that are looked at, with documents just '
            "inside and outside of each. Its other conditions are taken as given: only documents for which they hold are counted.",
            kind="str",
            convert=rule_of,
        ),
    ] = None
    to: Annotated[
        str | None,
        Opt(
            "Page to write, ending in .html, with sliders for all rules; it needs no network.",
            group=OUTPUT,
            convert=_page,
        ),
    ] = None
    examples: Annotated[
        int | None,
        Opt(
            "Documents to show on each side of each bound, with the beginnings of their texts; by default 2 on a page and for a rule, and none "
            "elsewhere.",
            min=0,
            max=MAX_EXAMPLES,
            expected=f"a number of documents, from 0 to {MAX_EXAMPLES}",
        ),
    ] = None
    length: Annotated[
        str | None,
        Opt(
            "Column that grows with the text, to estimate bytes from: by default ccnet_length, that of char_length_v1, or a number of words."
        ),
    ] = None
    tokens_per_byte: Annotated[float | None, Opt("By default 0.25.", convert=check_ratio)] = None
    tokenizer: Annotated[
        str | None,
        Opt(
            "Measure it with this tokenizer, on some documents: a JSON file, or a folder with tokenizer.json."
        ),
    ] = None
    name: Annotated[
        str,
        Opt("Name of the quantiles that levels are taken from.", group=OUTPUT, convert=check_name),
    ] = "quantiles"
    seed: Annotated[int, Opt("Seed of the sample of documents on the page.", convert=check_seed)] = 0

    def check(self) -> None:
        """Refuse two answers to one question."""
        super().check()
        if self.tokens_per_byte is not None and self.tokenizer is not None:
            raise UsageError(
                "tokens_per_byte and tokenizer were given; expected one of them. Leave tokens_per_byte out to have it measured."
            )

    @property
    def shows_texts(self) -> bool:
        """True if examples have the beginnings of their texts."""
        is_default = self.to is not None or self.where is not None
        return is_default if self.examples is None else self.examples > 0


@command
def what_if(
    dataset: WithAttributes,
    thresholds: Annotated[
        ThresholdsLike | None,
        Opt(
            "A level of its quantiles (regular, strict, even_stricter or strictest), a file of thresholds, or what thresholds() or quantiles() returned; "
            "by default regular.",
            kind="str or Thresholds",
            convert=same,
        ),
    ] = None,
    /,
    *,
    options: WhatIfOptions,
) -> WhatIf:
    """Tell which rule of some thresholds drops what, and what a stricter level would cost, from attributes alone.

    Example: dolma-dask what-if corpus/wiki/v0 regular --to what_if.html

    Returns
    -------
    WhatIf
        Counts of documents, bytes and tokens by rule, level and group; prints as tables, and is a page with sliders in a notebook.

    Raises
    ------
    UsageError
        There are no such thresholds, quantiles or columns, or an argument has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes do not line up.
    """
    found = options.open(dataset)
    if options.to is not None:
        check_outside(files.normalize(options.to), found.root)
    part = options.selected(found)
    bounds, given = _requested(thresholds, options.where)
    shown = 2 if options.examples is None else options.examples
    asked = ask(
        part,
        bounds,
        name=options.name,
        examples=shown,
        length=options.length,
        seed=options.seed,
        given=given,
    )
    if options.where is not None and not isinstance(options.where, Thresholds):
        asked = replace(asked, notes=())  # a rule has no levels
    if len(part.shards) < len(found.shards):  # the quantiles are of all
        asked = replace(asked, ladder=replace(asked.ladder, sizes={}))
    ratio = ratio_of(part, options.tokens_per_byte, options.tokenizer, options.seed)
    answer = asked.answer(options, *ratio)
    answer = replace(answer, notes=(*dataset_notes(found), *answer.notes))
    answer = with_excerpts(answer, part) if options.shows_texts else answer
    return answer if options.to is None else answer.written(options.to)


def _requested(thresholds: ThresholdsLike | None, where: RuleLike) -> tuple[ThresholdsLike, Rule | None]:
    """Return the bounds to look at, and the conditions that are taken as given."""
    if where is None:
        return "regular" if thresholds is None else thresholds, None
    if thresholds is not None:
        raise UsageError(
            "thresholds and where were given; expected one of them. Rules are joined by &: where=cuts & ~dk.duplicates()."
        )
    return split(where)


@dataclass(frozen=True)
class PreparedQuestion:
    """A question about some shards, of which the columns are known and nothing has been read."""

    dataset: Dataset  # the shards
    columns: Columns
    ladder: LevelBounds  # over full names of columns
    size: str | None  # column that bytes are estimated from
    examples: int  # documents on each side of each bound
    seed: int
    notes: tuple[str, ...]
    given: Rule | None = None  # over full names; only documents for which it holds are counted
    given_words: str = ""  # the same as the user wrote it

    @cached_property
    def tasks(self) -> list[Task]:
        """The work."""
        text = text_bytes_of(self.dataset) if self.given is None else {}  # which are of all documents
        return count_tasks(self.columns, self.dataset.shards, text, exact=self.given is not None)

    def answer(
        self, run: RunOptions, tokens_per_byte: float = TOKENS_PER_BYTE, ratio_from: str = ASSUMED
    ) -> WhatIf:
        """Read the columns and return the answer, without texts of examples; `ratio_from` says where the number of tokens comes from."""
        limits = sample_limits(self.ladder)
        stage = CountStage(
            self.ladder, self.ladder.signals, limits, self.size, self.examples, self.seed, self.given
        )
        tally = DropSums.of(self.ladder, self.examples)
        engine.gather(stage, self.tasks, run, lambda packed: tally.add(packed))
        tally.sample = tally.sample.ordered()
        measure = measure_of(self.size, tally.text_bytes, tokens_per_byte, ratio_from)
        shards = self.dataset.shards
        left_out = (
            ()
            if self.given is None
            else (f"{counted(tally.excluded, 'document')} left out: {self.given_words} does not hold",)
        )
        return answer_of(self.dataset.root, self.ladder, tally, measure, shards, (*left_out, *self.notes))


def ask(
    dataset: Dataset,
    thresholds: ThresholdsLike,
    *,
    name: str = "quantiles",
    examples: int = 2,
    length: str | None = None,
    seed: int = 0,
    given: Rule | None = None,
) -> PreparedQuestion:
    """Find the thresholds and columns that an answer needs; for the arguments and errors see `what_if`."""
    ladder, notes = find_ladder(dataset, thresholds, name)
    words = "" if given is None else given.short
    if given is not None:
        given = select(dataset, given, ()).rule
    columns, ladder, size = _columns(dataset, ladder, length, given.names if given is not None else ())
    fails = (FAILS,) if ladder.nulls == "fail" else ()
    return PreparedQuestion(dataset, columns, ladder, size, examples, seed, (*notes, *fails), given, words)


def _columns(
    dataset: Dataset, ladder: LevelBounds, length: str | None, others: Collection[str]
) -> tuple[Columns, LevelBounds, str | None]:
    """Return the columns to read, with `others`, the ladder with full names, and the column of the lengths."""
    groups = [name for name in ladder.by_columns if name != "source"]
    names = list(dict.fromkeys([*ladder.signals, *groups]))
    known = find_columns(dataset, names)
    full = dict(zip(names, known.names, strict=True))
    for name in known.names[: len(ladder.signals)]:
        check_signal(known, name)
    size = find_length(dataset, known.names) if length is None else find_columns(dataset, [length]).names[0]
    if size is not None and size not in known.names:
        known = find_columns(dataset, [*names, size])
    if size is not None:
        check_signal(known, size)
    if left := sorted(set(others) - set(known.names)):
        known = find_columns(dataset, [*known.names, *left])
    by: By = (
        tuple(full.get(name, name) for name in ladder.by_columns) if isinstance(ladder.by, tuple) else None
    )
    if isinstance(ladder.by, str):
        by = full.get(ladder.by, ladder.by)
    signals = tuple(full[signal] for signal in ladder.signals)
    return known, replace(ladder, signals=signals, by=by), size
