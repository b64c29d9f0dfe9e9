"""What can be known to be wrong with a stage before any stage runs, although only the verb itself would notice: names, rules, files."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dolma_dask.config.stages import StagePlan, full, is_in
from dolma_dask.config.yaml_nodes import Mistakes
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.tokenizer import find_tokenizer


def check_stages(file: str, stages: Sequence[StagePlan], every: Sequence[StagePlan]) -> None:
    """Refuse taggers and mappings that nobody knows, rules that cannot be parsed, and files that are not there.

    Parameters
    ----------
    file : str
        For messages.
    stages : sequence of StagePlan
        Those that will run.
    every : sequence of StagePlan
        All of the file: what one of them writes need not be there yet.

    Raises
    ------
    UsageError
        With all mistakes.
    """
    mistakes = Mistakes(file)
    made = [place for stage in every for place in stage.writes]
    for stage in stages:
        for name, check in _CHECKS.items():
            for value in _values(stage.arguments.get(name)):
                _note(stage, name, check, value, mistakes)
        for name in stage.entry.files:
            for url in stage.given([name]):
                if not any(is_in(full(url), place) for place in made) and not _is_there(name, url):
                    mistakes.add(
                        stage.place_of(name, url), f"{stage.verb}.{name}: {url}: there is no such file."
                    )
    mistakes.check()


def _values(value: Any) -> Sequence[Any]:
    """Return the items of a list, or the one value."""
    return () if value is None else value if isinstance(value, list) else (value,)


def _note(
    stage: StagePlan,
    name: str,
    check: Callable[[Any, StagePlan], object],
    value: Any,
    mistakes: Mistakes,
) -> None:
    try:
        check(value, stage)
    except UsageError as error:
        mistakes.add(stage.place_of(name, value), f"{stage.verb}.{name}: {error}")


def _is_there(name: str, url: str) -> bool:
    """Tell whether a file is there; a tokenizer may be named by its folder, or be given as text."""
    if name != "tokenizer":
        return files.stat(files.normalize(url)) is not None
    return url.lstrip().startswith("{") or find_tokenizer(url) is not None


def _check_tagger(name: str, stage: StagePlan) -> None:
    from dolma_dask.taggers.registry import get_tagger

    get_tagger(name)


def _check_rule(text: str, stage: StagePlan) -> None:
    from dolma_dask.mixing.where import parse

    parse(text)


def _check_mapping(name: str, stage: StagePlan) -> None:
    from dolma_dask.sources.presets import preset

    preset(name)


def _check_filter(text: str, stage: StagePlan) -> None:
    from dolma_dask.mixing.filters import check_expression

    check_expression(text, stage.arguments.get("syntax", "jsonpath"))


def _check_replacement(keys: Any, stage: StagePlan) -> None:
    from dolma_dask.mixing.replacements import make_replacement

    if isinstance(keys, Mapping):
        make_replacement(keys)


def _check_tokens(verb: str, options: Any, stage: StagePlan) -> None:
    from dolma_dask.stages.mixing.tokens import token_wishes

    if not isinstance(options, Mapping):
        raise UsageError(
            f"{options!r}; expected a map with the options of {verb}: {{to: FOLDER, tokenizer: FILE}}."
        )
    token_wishes(**{"ragged": None, "hdf5": None, verb: options})


_CHECKS: Mapping[str, Callable[[Any, StagePlan], object]] = {
    "taggers": _check_tagger,
    "where": _check_rule,
    "mapping": _check_mapping,
    "include": _check_filter,
    "exclude": _check_filter,
    "replace": _check_replacement,
    "ragged": partial(_check_tokens, "ragged"),
    "hdf5": partial(_check_tokens, "hdf5"),
}
