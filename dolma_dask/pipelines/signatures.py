"""A command's signature and docstring as the command line, completion and YAML take them."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from dolma_dask.registry import VERBS


class Argument(NamedTuple):
    """An argument of a verb, as YAML gives it."""

    hint: Any  # its type, of texts, numbers, truth values, lists and maps
    needed: bool = False  # it has no default
    positional: bool = False  # it has a position in Python, and no name


def arguments_of(verb: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a verb by name, its own first, then those that its ``**options`` name."""
    hints = get_type_hints(verb, include_extras=True)
    arguments: dict[str, Argument] = {}
    for item in inspect.signature(verb).parameters.values():
        if item.kind is item.VAR_KEYWORD:
            arguments |= shared_arguments(*get_args(hints[item.name]))  # of Unpack
        else:
            hint = in_words(hints[item.name], maps=True)
            arguments[item.name] = Argument(
                hint, item.default is item.empty, item.kind is item.POSITIONAL_ONLY
            )
    return arguments


def shared_arguments(options: Any) -> dict[str, Argument]:
    """Return the arguments that a TypedDict names."""
    return {name: Argument(in_words(hint, maps=True)) for name, hint in get_type_hints(options).items()}


def in_words(hint: Any, maps: bool = False, text: Any = str) -> Any:
    """Return what is left of a type where objects cannot be given, but a `text` and, for files, `maps`."""
    origin, choices = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = in_words(choices[0], maps, text)
        return inner if maps else Annotated[(inner, *choices[1:])]
    if origin is Sequence:
        return GenericAlias(Sequence, (in_words(choices[0], maps, text),))
    if origin not in (Union, UnionType):
        return text if hint is str else hint
    lists = [choice for choice in choices if get_origin(choice) is Sequence]
    if not lists and str not in choices:
        return hint
    kinds = [in_words(lists[0], maps, text) if lists else text]
    kinds += [NoneType] if NoneType in choices and text is str else []
    if maps and any(get_origin(choice) is Mapping for choice in choices):
        kinds.append(dict[str, Any])
    return reduce(or_, kinds)


def for_command_line(verb: Callable[..., Any], texts: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Return a verb as the command line takes it: words instead of objects; what may be given by name in Python must be.

    `texts`: types that some arguments have instead of str.
    """

    def command(*words: Any, **options: Any) -> Any:
        return verb(*words, **options)

    given = _parameters(verb)
    parameters = [
        item.replace(annotation=_shown(item, in_words(hint, text=(texts or {}).get(name, str)), given))
        for name, (item, hint) in given.items()
    ]
    command.__name__, command.__doc__ = verb.__name__, help_text(verb.__doc__ or "", spellings(verb))
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameters(verb: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Any]]:
    """Return the parameters of a command and their types, those that its ``**options`` name among them."""
    hints = get_type_hints(verb, include_extras=True)
    given: dict[str, tuple[inspect.Parameter, Any]] = {}
    for item in inspect.signature(verb).parameters.values():
        if item.kind is item.VAR_KEYWORD:
            shared = get_type_hints(get_args(hints[item.name])[0], include_extras=True)
            for name, hint in shared.items():
                given[name] = inspect.Parameter(name, item.KEYWORD_ONLY, default=None), hint
        else:
            kind = item.KEYWORD_ONLY if item.kind is item.POSITIONAL_OR_KEYWORD else item.kind
            given[item.name] = item.replace(kind=kind), hints[item.name]
    return given


_OPTIONS, _WHAT, _OUTPUT, _BAD, _WHERE = (
    Group(title, sort_key=number)
    for number, title in enumerate(
        ("Options", "What to work on", "Output", "Bad records", "Where it runs"), start=1
    )
)

_GROUPS = {
    **dict.fromkeys(("source", "version", "attributes", "only", "share", "prune", "from_"), _WHAT),
    **dict.fromkeys(
        ("to", "ragged", "hdf5", "format", "name", "experiment", "folder", "report", "overwrite", "dry_run"),
        _OUTPUT,
    ),
    **dict.fromkeys(("on_bad_record", "max_record_bytes", "max_bad_fraction"), _BAD),
    **dict.fromkeys(("scheduler", "workers", "cluster", "progress"), _WHERE),
}
"""Group of an option in the help; others are the command's own."""


def _shown(item: inspect.Parameter, hint: Any, given: Collection[str]) -> Any:
    """Return a type with the group of its option, and truth values in words."""
    if item.kind is item.POSITIONAL_ONLY:
        return hint
    is_own = item.name in ("source", "attributes") and "dataset" not in given  # of raw files
    more: dict[str, Any] = {"group": _OPTIONS if is_own else _GROUPS.get(item.name, _OPTIONS)}
    if isinstance(item.default, bool):
        more["show_default"] = lambda value: "yes" if value else "no"
    inner, *others = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return Annotated[(inner, Parameter(**more), *others)]


def completed_texts() -> dict[str, Any]:
    """Return what shells complete instead of texts, by argument: paths where files are meant, names where only some are valid."""
    from dolma_dask.sources.mapping import PRESETS
    from dolma_dask.taggers.registry import list_taggers

    urls = {name for verb in VERBS.values() for name in (*verb.reads, *verb.files, *verb.writes)}
    return {
        **dict.fromkeys({*urls, "path", "folder"}, Path),
        **dict.fromkeys(
            ("taggers", "tagger"), Literal.__getitem__(tuple(item.name for item in list_taggers()))
        ),
        "mapping": Literal.__getitem__(tuple(PRESETS)),
    }


# ------------------------------------------------------------------------------------------------ help

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)\n((?: .*\n?|\n)*)", re.MULTILINE)
_COLUMNS = re.compile(r"\S {2,}\S")


def spellings(verb: Callable[..., Any]) -> dict[str, str]:
    """Return how the command line spells each argument of a command."""
    return {
        name: name.upper() if item.kind is item.POSITIONAL_ONLY else f"--{name.rstrip('_').replace('_', '-')}"
        for name, (item, _) in _parameters(verb).items()
    }


_IN_PYTHON = re.compile(r"\s*\b(?:In|From) Python\b[^.]*\.")
_VALUE = re.compile(r'`?\b(\w+)="([^"]*)"`?')
_QUOTED = re.compile(r"`(\w+)`")


def _spelled(text: str, names: Mapping[str, str]) -> str:
    """Return a text that speaks of arguments as Python does, as the command line does; what is of Python alone is left out."""
    text = _VALUE.sub(lambda found: f"{names[found[1]]} {found[2]}" if found[1] in names else found[0], text)
    return _QUOTED.sub(lambda found: names.get(found[1], found[0]), _IN_PYTHON.sub("", text))


def help_text(doc: str, names: Mapping[str, str]) -> str:
    """Return a docstring as terminals show it: each argument by itself, its description in one line; `names` says how they are spelled."""
    sections = _sections(_spelled(inspect.cleandoc(doc), names))
    lines = [
        f"{name} : {kind}\n    {' '.join(text.split())}"
        for names, kind, text in _ENTRY.findall(sections.get("Parameters", ""))
        for name in names.split(", ")
    ]
    return "\n".join([_flowing(sections[""]), *(["", "Parameters", "----------", *lines] if lines else [])])


def notes(doc: str, names: Mapping[str, str]) -> str:
    """Return the notes of a docstring, empty if there are none."""
    return _flowing(_spelled(_sections(doc).get("Notes", ""), names))


def _sections(doc: str) -> dict[str, str]:
    """Return the sections of a docstring by heading; the first has none."""
    first, *parts = _HEADING.split(inspect.cleandoc(doc))
    return {
        "": first.strip(),
        **{name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)},
    }


def _flowing(text: str) -> str:
    """Return a text with each paragraph in one line; lines with columns stay as they are."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(
        one if _COLUMNS.search(one) else " ".join(line.strip() for line in one.splitlines())
        for one in paragraphs
    ).strip()
