"""Two datasets beside each other: versions of one corpus, or runs with other rules.

Both are read as for their own pages. Where a dataset has signals of its own, these are compared; else those of the documents that it was selected from,
as far as its rule keeps them. Histograms of both sides have the same bins, so that their distance is exact to one bin.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.display import isolated, last_name
from dolma_dask.display import listed as in_words
from dolma_dask.errors import UsageError
from dolma_dask.figures.histogram import Histogram, counts_between, display_edges, quantiles
from dolma_dask.figures.model import SignalHistogram
from dolma_dask.io import files
from dolma_dask.options.groups import RunOptions
from dolma_dask.pages.content import DatasetContent, Reading, dataset_content
from dolma_dask.pages.history import History, public_name, token_origin
from dolma_dask.pages.model import ComparisonPart, OptionChange, SignalChange
from dolma_dask.pages.record import Page

if TYPE_CHECKING:
    from dolma_dask.pages.verb import ReportOptions

PLACES = ("from", "to", "dataset", "inputs", "compare", "tokens", "tokenizer")
"""Parameters that name places: they differ wherever two runs have folders of their own."""


class ComparisonContent(Struct, frozen=True):
    """Two datasets of a page, the older one first."""

    before: DatasetContent
    after: DatasetContent
    title: str

    @property
    def root(self) -> str:
        """Dataset that is read first."""
        return self.after.root

    @property
    def shards(self) -> tuple[str, ...]:
        """Shards that are read, of both."""
        return (*self.before.shards, *self.after.shards)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a person before anything is read."""
        return tuple(dict.fromkeys((*self.before.notes, *self.after.notes)))

    def would(self) -> str:
        """Say what the page would be made of."""
        return f"{self.before.would()}; {self.after.would()}"

    def draw(self, run: RunOptions) -> Page:
        """Read the documents of both and draw the page."""
        from dolma_dask.pages import comparison_page

        before, after = self.before.read(run), self.after.read(run)
        data = _comparison(self, before, after)
        documents = {"documents_before": before.findings.documents, "documents": after.findings.documents}
        return Page(
            comparison_page.render(data),
            comparison_page.write_json(data),
            {**documents, "signals": len(data.signals)},
            len(self.shards),
            tuple(dict.fromkeys((*self.notes, *before.notes, *after.notes))),
        )


def comparison_content(
    before: tuple[Dataset, str], after: tuple[Dataset, str], options: "ReportOptions"
) -> ComparisonContent:
    """Find the histories of two datasets, each with its name for readers; folders of tokens are of either.

    Raises `UsageError`: both are the same, or token shards are of neither.
    """
    roots = before[0].root, after[0].root
    if roots[0] == roots[1]:
        raise UsageError(
            f"compare is {roots[0]}, the dataset itself; expected another version or another run."
        )
    own: tuple[list[str], list[str]] = ([], [])
    for folder in options.tokens:
        own[_side(folder, roots)].append(folder)
    names = _distinct((public_name(before[1]), public_name(after[1])))
    contents = [
        dataset_content(dataset, name, tuple(folders), options, is_compared=True)
        for (dataset, _), name, folders in zip((before, after), names, own, strict=True)
    ]
    title = options.title or f"{isolated(names[1])} compared with {isolated(names[0])}"
    return ComparisonContent(contents[0], contents[1], title)


def _distinct(names: tuple[str, str]) -> tuple[str, str]:
    return names if names[0] != names[1] else (f"{names[0]} (before)", f"{names[1]} (after)")


def _side(folder: str, roots: tuple[str, str]) -> int:
    """Return which of two datasets token shards were made from: 0 or 1."""
    made_from = token_origin(files.normalize(folder))
    for name in (str, last_name):
        found = [number for number, root in enumerate(roots) if name(root) == name(made_from)]
        if len(found) == 1:
            return found[0]
    raise UsageError(
        f"{folder} was made from {made_from}; expected token shards of {' or '.join(roots)}. Leave it out of --tokens."
    )


# ------------------------------------------------------------------------------------------------ what is different


def _comparison(content: ComparisonContent, before: Reading, after: Reading) -> ComparisonPart:
    old, new = _signals(before), _signals(after)
    changes = [signal_change(key, old[key], new[key]) for key in old if key in new]
    return ComparisonPart(
        title=content.title,
        before=before.data,
        after=after.data,
        signals=sorted(changes, key=lambda change: (-change.change, change.before.key)),
        options=tuple(option_changes(content.before.history, content.after.history)),
        only_before=tuple(key for key in old if key not in new),
        only_after=tuple(key for key in new if key not in old),
    )


def _signals(reading: Reading) -> dict[str, Histogram]:
    """Return the signals of the documents of a dataset: those that its rule keeps, if it was selected by one."""
    found = reading.findings.kept_signals if reading.survey.parts else reading.findings.signals
    return {key: found.get(key, Histogram()) for key in reading.survey.keys}


def signal_change(key: str, before: Histogram, after: Histogram) -> SignalChange:
    """Put a signal of both sides into the same bins."""
    both = before + after
    edges, scale = display_edges(both)

    def one(side: Histogram) -> SignalHistogram:
        counts = counts_between(side.at_shift(max(side.shift, both.shift)), edges)
        return SignalHistogram(
            key,
            edges,
            counts,
            None,
            side.n,
            side.nulls,
            side.min,
            side.max,
            quantiles(side),
            (),
            scale,
            side.infinite,
        )

    return SignalChange(one(before), one(after), distance(before, after))


def distance(before: Histogram, after: Histogram) -> float | None:
    """Return the distance of Kolmogorov and Smirnov: the largest difference of the shares of values below a bound, 0 to 1; None without values."""
    if not len(before.keys) or not len(after.keys):
        return None
    shift = max(before.shift, after.shift)
    sides = before.at_shift(shift), after.at_shift(shift)
    keys = np.union1d(sides[0].keys, sides[1].keys)
    shares = np.zeros((2, len(keys)))
    for row, side in zip(shares, sides, strict=True):
        row[np.searchsorted(keys, side.keys)] = side.counts / side.counts.sum()
    return float(np.abs(np.diff(shares.cumsum(axis=1), axis=0)).max())


def option_changes(before: History, after: History) -> Iterator[OptionChange]:
    """Yield the verbs that only one history has, and options that differ, but for those that name places."""
    old, new = _options(before), _options(after)
    for name in dict.fromkeys((*old, *new)):
        if name not in old or name not in new:
            yield OptionChange(name, "", _ran(name in old), _ran(name in new))
            continue
        for option in dict.fromkeys((*old[name], *new[name])):
            values = old[name].get(option, ""), new[name].get(option, "")
            if values[0] != values[1]:
                yield OptionChange(name, option, *values)


def _ran(is_there: bool) -> str:
    return "ran" if is_there else "did not run"


def _options(history: History) -> dict[str, dict[str, str]]:
    """Return the options of the newest run of each verb, and of each name that it gave to its results."""
    return {
        " ".join(filter(None, (step.verb, str(run.params.get("name") or run.params.get("under") or "")))): {
            key: _shown(value) for key, value in run.params.items() if key not in PLACES
        }
        for step in history.steps
        for run in step.runs
    }


def _shown(value: Any) -> str:
    """Write a parameter without folders of this machine."""
    if isinstance(value, Mapping):
        return in_words([f"{key}: {_shown(one)}" for key, one in value.items()])
    if isinstance(value, list | tuple):
        return in_words([_shown(one) for one in value])
    text = str(value)
    return last_name(text) if text.startswith(("/", "file:")) else text
