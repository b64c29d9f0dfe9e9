"""what_if: which rule of some thresholds drops what, and what a stricter level would cost; nothing is written but a page, if one is wanted.

Attribute columns alone are read, in one pass; documents are opened where a column of theirs is needed (a group such as metadata.language) and for the
texts of examples.
"""

from dataclasses import dataclass
from functools import cached_property
from sys import float_info
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.engine.fold import fold, shards_of
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.options.base import ABOVE_0, OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import (
    DatasetOptions,
    PlaceOptions,
    QuestionOptions,
    WithAttributes,
    check_outside,
    same,
    target_of,
)
from dolma_dask.options.kept import RuleLike, rule_of
from dolma_dask.ownership import dataset_notes
from dolma_dask.questions.what_if import texts
from dolma_dask.questions.what_if.answer import WhatIf
from dolma_dask.questions.what_if.levels import LevelBounds, ThresholdsLike, find_bounds, split
from dolma_dask.questions.what_if.rows import Counted
from dolma_dask.questions.what_if.sums import CountDrops, ShardToCount
from dolma_dask.reading.columns import Columns, find_columns
from dolma_dask.reading.lengths import find_length
from dolma_dask.reading.selection import select
from dolma_dask.reading.signals import check_signal
from dolma_dask.reading.thresholds import check_name
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.sampling import check_seed
from dolma_dask.rules.thresholds import Thresholds

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
class WhatIfOptions(DatasetOptions, QuestionOptions):
    """Options of `what_if`."""

    where: Annotated[
        RuleLike,
        Opt(
            'A rule, as in mix, in place of thresholds: its conditions such as "word_count >= 50" are the rules that are looked at, with documents just '
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
            "Column that grows with the text, to estimate bytes from; by default a number of characters (ccnet_length, that of char_length_v1, character_count), else of words."
        ),
    ] = None
    tokens_per_byte: Annotated[
        float | None,
        Opt(
            "Tokens per byte of text; by default 0.25.",
            min=ABOVE_0,
            max=float_info.max,
            expected="a number above 0, such as 0.25",
        ),
    ] = None
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
    question = ask(
        part,
        bounds,
        name=options.name,
        examples=2 if options.examples is None else options.examples,
        length=options.length,
        seed=options.seed,
        given=given,
        is_part=len(part.shards) < len(found.shards),
    )
    if options.where is not None and not isinstance(options.where, Thresholds):
        question = replace(question, notes=())  # a rule has no levels
    ratio = texts.ratio_of(part, options.tokens_per_byte, options.tokenizer, options.seed)
    answer = question.answer(options, *ratio)
    answer = replace(answer, notes=(*dataset_notes(found), *answer.notes))
    answer = answer.with_excerpts(part) if options.shows_texts else answer
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


class PreparedQuestion(Struct, frozen=True, dict=True):
    """A question about some shards, of which the columns are known and nothing has been read."""

    dataset: Dataset  # the shards
    columns: Columns
    counting: CountDrops
    notes: tuple[str, ...]
    given_words: str = ""  # the rule of the documents that are counted, as the user wrote it

    @cached_property
    def shards(self) -> list[ShardToCount]:
        """What is read."""
        text = texts.text_bytes_of(self.dataset)
        return [
            ShardToCount(columns, number, text.get(columns.shard.path))
            for number, columns in enumerate(shards_of(self.columns, exact=self.counting.given is not None))
        ]

    def answer(
        self,
        run: PlaceOptions,
        tokens_per_byte: float = texts.TOKENS_PER_BYTE,
        ratio_from: str = texts.ASSUMED,
    ) -> WhatIf:
        """Read the columns and return the answer, without texts of examples; `ratio_from` says where the number of tokens comes from."""
        sums = fold(self.counting, self.shards, run, in_order=False)
        sizes = texts.measure_of(self.counting.size, sums.text_bytes, tokens_per_byte, ratio_from)
        counts = Counted(self.counting.bounds, sums, sizes)
        left_out = f"{counted(sums.excluded, 'document')} left out: {self.given_words} does not hold"
        notes = self.notes if self.counting.given is None else (left_out, *self.notes)
        answer = WhatIf.of(self.dataset.root, counts, self.dataset.shards, notes)
        return replace(answer, given=self.given_words)


def ask(
    dataset: Dataset,
    thresholds: ThresholdsLike,
    *,
    name: str = "quantiles",
    examples: int = 2,
    length: str | None = None,
    seed: int = 0,
    given: Rule | None = None,
    is_part: bool = False,
) -> PreparedQuestion:
    """Find the thresholds and columns that an answer needs; for the arguments and errors see `what_if`.

    Only documents for which `given` holds are counted. Of a part of the shards the quantiles, which are of all, tell no sizes.
    """
    bounds, notes = find_bounds(dataset, thresholds, name)
    bounds = replace(bounds, sizes={}) if is_part else bounds
    rule = select(dataset, given, ()).rule
    columns, full, size = _columns(dataset, bounds, length, rule)
    counting = CountDrops(bounds.renamed(full), size, examples, seed, rule)
    notes = (*notes, FAILS) if bounds.nulls == "fail" else notes
    return PreparedQuestion(dataset, columns, counting, notes, "" if given is None else given.short)


def _columns(
    dataset: Dataset, bounds: LevelBounds, length: str | None, rule: Rule | None
) -> tuple[Columns, dict[str, str], str | None]:
    """Return the columns to read, with those of a rule, the full names of those with bounds and of the groups, and the column of the lengths."""
    groups = [name for name in bounds.by_columns if name != "source"]
    names = list(dict.fromkeys([*bounds.signals, *groups]))
    columns = find_columns(dataset, names)
    full = dict(zip(names, columns.names, strict=True))
    for name in bounds.signals:
        check_signal(columns, full[name])
    size = find_length(dataset, columns.names) if length is None else find_columns(dataset, [length]).names[0]
    if size is not None and size not in columns.names:
        columns = find_columns(dataset, [*names, size])
    if size is not None:
        check_signal(columns, size)
    return columns.with_rule(rule), full, size
