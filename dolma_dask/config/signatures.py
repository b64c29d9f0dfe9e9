"""A command's signature and docstring as the command line, completion and YAML take them."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

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
    if maps and not lists and any(get_origin(choice) is Mapping for choice in choices):
        kinds.append(dict[str, Any])
    return reduce(or_, kinds)


def for_command_line(verb: Callable[..., Any], texts: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Return a verb as the command line takes it: words instead of objects; what may be given by name in Python must be.

    `texts`: types that some arguments have instead of str.
    """

    def command(*words: Any, **options: Any) -> Any:
        return verb(*words, **options)

    command.__name__, command.__doc__ = verb.__name__, help_text(verb.__doc__ or "")
    hints = get_type_hints(verb, include_extras=True).items()
    command.__annotations__ = {
        name: in_words(hint, text=(texts or {}).get(name, str)) for name, hint in hints
    }
    signature = inspect.signature(verb)
    parameters = [
        item.replace(
            kind=item.KEYWORD_ONLY if item.kind is item.POSITIONAL_OR_KEYWORD else item.kind,
            annotation=command.__annotations__[item.name],
        )
        for item in signature.parameters.values()
    ]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def completed_texts() -> dict[str, Any]:
    """Return what shells complete instead of texts, by argument: paths where files are meant, names where only some are valid."""
    from dolma_dask.sources.mapping import PRESETS
    from dolma_dask.taggers.registry import list_taggers

    urls = {name for verb in VERBS.values() for name in (*verb.reads, *verb.files, *verb.writes)}
    return {
        **dict.fromkeys({*urls, "path", "folder"}, Path),
        "taggers": Literal.__getitem__(tuple(item.name for item in list_taggers())),
        "mapping": Literal.__getitem__(tuple(PRESETS)),
    }


# ------------------------------------------------------------------------------------------------ help

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)\n((?: .*\n?|\n)*)", re.MULTILINE)
_COLUMNS = re.compile(r"\S {2,}\S")


def help_text(doc: str) -> str:
    """Return a docstring as terminals show it: each argument by itself, and its description in one line."""
    sections = _sections(doc)
    lines = [
        f"{name} : {kind}\n    {' '.join(text.split())}"
        for names, kind, text in _ENTRY.findall(sections.get("Parameters", ""))
        for name in names.split(", ")
    ]
    return "\n".join([_flowing(sections[""]), *(["", "Parameters", "----------", *lines] if lines else [])])


def notes(doc: str) -> str:
    """Return the notes of a docstring, empty if there are none."""
    return _flowing(_sections(doc).get("Notes", ""))


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
