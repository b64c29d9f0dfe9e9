"""Thresholds in files: those that belong to the quantiles of a dataset, and those that a person wrote."""

import shlex
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import msgspec

from dolma_dask.dataset import Dataset
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record, is_same_file
from dolma_dask.options.base import words_of
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.results.summary import Summary
from dolma_dask.rules.groups import ALL
from dolma_dask.rules.lumi_thresholds import from_lumi, is_lumi
from dolma_dask.rules.quantile_table import QuantileTable
from dolma_dask.rules.strictness import LEVELS, MIXED, LevelLike
from dolma_dask.rules.thresholds import By, Kind, NullPolicy, Thresholds, check_nulls, thresholds_of

QUANTILES = "quantiles"
"""Folder of the results, and name of the verb and its journal."""

Source = str | Dataset | Summary | Mapping[str, Any]
"""A file, a dataset, what `quantiles` returned, or the content of its file."""


def quantiles_path(name: str) -> str:
    """Return where quantiles stand, relative to the dataset."""
    return f"{QUANTILES}/{name}.json"


def thresholds_path(name: str, level: str) -> str:
    """Return where the thresholds of a level stand, by its name, relative to the dataset."""
    return f"{QUANTILES}/{name}.{level}.json"


def thresholds(
    source: Source,
    level: LevelLike = "regular",
    *,
    tails: Mapping[str, str] | None = None,
    nulls: NullPolicy = "drop",
    by: str | Sequence[str] | None = None,
    name: str = "quantiles",
) -> Thresholds:
    """Take lower and upper bounds from quantiles.

    Parameters
    ----------
    source : str, Dataset, QuantilesSummary or mapping
        A file that `quantiles` wrote, the dataset it is about, what it returned, or the content of the file.
    level : {"regular", "strict", "even_stricter", "strictest"}, or several
        10 and 90 %, 20 and 80 %, 30 and 70 %, 40 and 60 %; with others for some groups and signals: ["strict", "de=regular", "perplexity=strictest"],
        or {"default": "strict", "de": "regular"}.
    tails : mapping of str to {"lower", "upper", "both"}, optional
        Which bounds of a signal are used; default: those of the LUMI chain for the signals that it uses, and of `rules.tails` for others of the built-in taggers; both for the rest.
    nulls : {"drop", "keep", "fail"}
        Fate of a document without a value of a signal: it is outside, it is inside, or `mix` fails and names it.
    by : str or list of str, optional
        Column of the groups, or several, where the journal does not tell it because the file was copied away.
    name : str
        Of the quantiles of a dataset.

    Returns
    -------
    Thresholds
        A rule over rows, for ``where=``.

    Raises
    ------
    UsageError
        There are no such quantiles, the level or a tail is unknown, or the column of the groups is needed and not known.

    Examples
    --------
    >>> cuts = thresholds("corpus/wiki", "strict", tails={"word_count": "lower"})  # doctest: +SKIP
    >>> mix("corpus/wiki", to="corpus/v1", where=cuts)  # doctest: +SKIP

    Thresholds join with other rules, and with the text of a rule:

    >>> mix("corpus/wiki", to="corpus/v1", where=cuts & "length > 3")  # doctest: +SKIP
    """
    table, parameters, where = _load(source, name)
    column: By = _tuples(by or parameters.get("by"))
    kind: Kind = _tuples(parameters.get("by_kind", "string"))
    if column is None and any(set(groups) - {ALL} for groups in table.values()):
        raise UsageError(
            f"{where} has groups, and no journal tells by which column; expected its name. Give it: by='source'."
        )
    return thresholds_of(table, level, column, kind, tails, check_nulls(nulls))


def _tuples(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else tuple(value)


def _load(source: Source, name: str) -> tuple[QuantileTable, Mapping[str, Any], str]:
    """Return quantiles, what is known of how they were made, and where they stand."""
    if isinstance(source, QuantilesSummary):
        return source.quantiles, source.parameters, source.file
    if isinstance(source, Mapping):
        return check_table(source, "the quantiles"), {}, "the mapping"
    if isinstance(source, Dataset | Summary):
        root = source.root if isinstance(source, Dataset) else source.target
        return _load(files.join(root, quantiles_path(name)), name)
    url = files.normalize(source)
    if not url.endswith(".json"):
        return _load(files.join(layout.dataset_root(url), quantiles_path(name)), name)
    return read_table(url), _parameters(url), url


def read_table(url: str) -> QuantileTable:
    """Read a file that `quantiles` wrote.

    Raises
    ------
    UsageError
        There is none, or it holds something else.
    """
    return check_table(_read_json(url, "dolma-dask quantiles"), url)


def read_thresholds(url: str) -> Thresholds:
    """Read thresholds that `quantiles` wrote for a level, or a person, also in the JSON form of the LUMI chain.

    Raises
    ------
    UsageError
        There is no such file, it holds something else, or `quantiles` wrote it from other quantiles than stand beside it now.
    """
    _check_current(files.normalize(url))
    content = _read_json(url, "dolma-dask quantiles ... --level regular")
    return from_lumi(content, url) if is_lumi(content) else Thresholds.from_json(content, url)


def level_words(name: str) -> str:
    """Return how a level of thresholds is asked for."""
    return "... (the same levels)" if name == MIXED else name


def _check_current(url: str) -> None:
    """Refuse thresholds of quantiles that have been replaced since."""
    root, record = _recorded(url)
    if record is not None and is_outdated(root, record):
        name, level = record.unit.removeprefix(f"{QUANTILES}/").removesuffix(".json").rsplit(".", 1)
        raise UsageError(
            f"{url} was made of other quantiles than {quantiles_path(name)} holds now; expected thresholds of these. Make them again: "
            f"dolma-dask quantiles {shlex.quote(root)} --name {name} --level {level_words(level)}, with the same signals."
        )


def is_outdated(root: str, record: Record) -> bool:
    """Tell whether a file of thresholds is as it was written, and the quantiles that it was made of are not."""
    if len(record.files) != 1 or len(record.inputs) != 1:
        return False  # a damaged record says nothing
    (written,), (source,) = record.files, record.inputs
    url = files.join(root, written.path)
    found = files.stat(url)
    if found is None or found.bytes != written.bytes or files.checksum(url) != written.checksum:
        return False  # gone, or a person's
    table = files.join(root, source.path)
    return not is_same_file(source, table, files.stat(table))


def _read_json(url: str, command: str) -> Any:
    try:
        return msgspec.json.decode(files.read_bytes(files.normalize(url)))
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {url}; expected what `{command}` writes. Make it, or correct the path."
        ) from None
    except NOT_JSON as error:
        raise UsageError(f"{url} is no JSON ({error}); expected what `{command}` writes.") from error


def check_table(content: Any, where: str) -> QuantileTable:
    """Return `content` if it has the form of quantiles; raise `UsageError` otherwise."""
    is_table = isinstance(content, Mapping) and all(
        isinstance(groups, Mapping) and ALL in groups and all(_is_entry(item) for item in groups.values())
        for groups in content.values()
    )
    if not is_table:
        raise UsageError(
            f'{where}: no quantiles; expected {{signal: {{"all": {{"n", "nulls", "min", "max", "q": {{"0.1": ...}}}}}}}}. Make them: '
            "dolma-dask quantiles."
        )
    return content  # type: ignore[no-any-return]


_NUMBERS = (float, int, Real)
"""Real alone would be asked of each number, in Python."""


def _is_entry(item: Any) -> bool:
    if (
        not isinstance(item, Mapping)
        or not isinstance(item.get("n"), int)
        or not isinstance(item.get("q"), Mapping)
    ):
        return False
    return all(value is None or isinstance(value, _NUMBERS) for value in item["q"].values())


def _parameters(url: str) -> Mapping[str, Any]:
    """Return how a file was made, if the journal of the dataset it stands in knows it."""
    _, record = _recorded(url)
    return record.info.get("parameters", {}) if record else {}


def _recorded(url: str) -> tuple[str, Record | None]:
    """Return the root of the dataset that a file stands in, and what its journal says of the file."""
    folder, _, name = url.rpartition("/")
    root, _, parent = folder.rpartition("/")
    if parent != QUANTILES:
        return root, None
    return root, Journal(root, QUANTILES).records.get(f"{QUANTILES}/{name}")


def tails_in_words(tails: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    """Return the tail of each signal that is named; raise `UsageError` for words that name none."""
    if isinstance(tails, Mapping):
        return tails
    pairs = [word.rpartition("=") for word in words_of("tails", tails, may_be_empty=True)]
    for name, sign, tail in pairs:
        if not (name and sign):
            raise UsageError(f"tails: found {tail!r}; expected NAME=lower, NAME=upper or NAME=both.")
    return {name: tail for name, _, tail in pairs}


def check_name(name: str) -> str:
    """Return a name of quantiles; raise `UsageError` if it cannot be one."""
    layout.check_name(name, "name")
    ending = name.rpartition(".")[2]
    if ending in (*LEVELS, MIXED):
        raise UsageError(
            f"name={name!r} ends like the thresholds of a level; expected another name. Leave {'.' + ending!r} out."
        )
    return name
