"""what_if: which rule of some thresholds drops what, and what a stricter level would cost; nothing is written but a page, if one is wanted.

Attribute columns alone are read, in one pass; documents are opened where a column of theirs is needed (a group such as metadata.language) and for the
texts of examples.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Unpack

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine import Task
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.journal import dataset_notes
from dolma_dask.options.groups import RunOptions
from dolma_dask.options.shared import (
    DatasetLike,
    RuleLike,
    RunArgs,
    as_dataset,
    check_outside,
    checked,
    rule_of,
    run_options,
    selected,
    target_of,
)
from dolma_dask.questions.what_if.answer import WhatIf, answer_of
from dolma_dask.questions.what_if.conditions import split
from dolma_dask.questions.what_if.examples import with_excerpts
from dolma_dask.questions.what_if.ladder import Ladder, ThresholdsLike, find_ladder
from dolma_dask.questions.what_if.measure import (
    ASSUMED,
    TOKENS_PER_BYTE,
    find_length,
    measure_of,
    ratio_of,
    text_bytes_of,
)
from dolma_dask.questions.what_if.stage import CountStage, Tally, count_tasks, sample_limits
from dolma_dask.reading import Columns, find_columns
from dolma_dask.reading.selection import select
from dolma_dask.reading.signals import check_signal
from dolma_dask.reading.thresholds import check_name
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import check_seed
from dolma_dask.rules.thresholds import By, Thresholds

MOST_EXAMPLES = 20

FAILS = (
    "documents without a value count as dropped; mix and filter fail on the first of them, as nulls is fail"
)


def what_if(
    dataset: DatasetLike,
    thresholds: ThresholdsLike | None = None,
    /,
    *,
    where: RuleLike = None,
    to: str | None = None,
    examples: int | None = None,
    length: str | None = None,
    tokens_per_byte: float | None = None,
    tokenizer: str | None = None,
    name: str = "quantiles",
    seed: int = 0,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RunArgs],
) -> WhatIf:
    """Tell which rule of some thresholds drops what, and what a stricter level would cost, from attributes alone.

    Example: dolma-dask what-if corpus/wiki/v0 regular --to what_if.html

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    thresholds : str or Thresholds
        A level of its quantiles (regular, strict, even_stricter or strictest), a file of thresholds, or what thresholds() or quantiles() returned;
        by default regular.
    where : str, optional
        In place of thresholds a rule, as in mix: its conditions such as "word_count >= 50" are the rules that are looked at, with documents just
        inside and outside of each. Its other conditions are taken as given: only documents for which they hold are counted.
    to : str, optional
        Page to write, ending in .html, with sliders for all rules; it needs no network.
    examples : int, optional
        Documents to show on each side of each bound, with the beginnings of their texts; by default 2 on a page and for a rule, and none elsewhere.
    length : str, optional
        Column that grows with the text, to estimate bytes from: by default ccnet_length, that of char_length_v1, or a number of words.
    tokens_per_byte : float, optional
        By default 0.25.
    tokenizer : str, optional
        Measure it with this tokenizer, on some documents: a JSON file, or a folder with tokenizer.json.
    name : str, optional
        Name of the quantiles that levels are taken from.
    seed : int, optional
        Seed of the sample of documents on the page.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    options = checked(what_if, options, RunArgs)
    check_name(name)
    to = None if to is None else target_of(to)
    if to is not None and not to.endswith(".html"):
        raise UsageError(f"to is {to!r}; expected the path or URL of a page that ends in .html.")
    shown = _check_examples(examples, to)
    found = as_dataset(dataset, source, version)
    if to is not None:
        check_outside(files.normalize(to), found.root)
    part = selected(found, options)
    bounds, given = _requested(thresholds, where)
    asked = ask(part, bounds, name=name, examples=shown, length=length, seed=check_seed(seed), given=given)
    if where is not None and not isinstance(rule_of(where), Thresholds):
        asked = replace(asked, notes=())  # a rule has no levels
    if len(part.shards) < len(found.shards):  # the quantiles are of all
        asked = replace(asked, ladder=replace(asked.ladder, sizes={}))
    answer = asked.answer(run_options(options), *ratio_of(part, tokens_per_byte, tokenizer, seed))
    answer = replace(answer, notes=(*dataset_notes(found), *answer.notes))
    if examples or (examples is None and (to is not None or where is not None)):
        answer = with_excerpts(answer, part)
    return answer.written(to) if to is not None else answer


def _requested(thresholds: ThresholdsLike | None, where: RuleLike) -> tuple[ThresholdsLike, Rule | None]:
    """Return the bounds to look at, and the conditions that are taken as given."""
    rule = rule_of(where)
    if rule is None:
        return "regular" if thresholds is None else thresholds, None
    if thresholds is not None:
        raise UsageError(
            "thresholds and where were given; expected one of them. Rules are joined by &: where=cuts & ~dk.duplicates()."
        )
    return split(rule)


@dataclass(frozen=True)
class Asked:
    """A question about some shards, of which the columns are known and nothing has been read."""

    dataset: Dataset  # the shards
    columns: Columns
    ladder: Ladder  # over full names of columns
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
        tally = Tally.of(self.ladder, self.examples)
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
) -> Asked:
    """Find the thresholds and columns that an answer needs; for the arguments and errors see `what_if`."""
    ladder, notes = find_ladder(dataset, thresholds, name)
    words = "" if given is None else given.short
    if given is not None:
        given = select(dataset, given, ()).rule
    columns, ladder, size = _columns(dataset, ladder, length, given.names if given is not None else ())
    fails = (FAILS,) if ladder.nulls == "fail" else ()
    return Asked(dataset, columns, ladder, size, examples, seed, (*notes, *fails), given, words)


def _check_examples(examples: int | None, to: str | None) -> int:
    if examples is None:
        return 2
    if isinstance(examples, bool) or not isinstance(examples, int) or not 0 <= examples <= MOST_EXAMPLES:
        raise UsageError(f"examples={examples!r}; expected a number of documents, from 0 to {MOST_EXAMPLES}.")
    return examples


def _columns(
    dataset: Dataset, ladder: Ladder, length: str | None, others: Collection[str]
) -> tuple[Columns, Ladder, str | None]:
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
