"""Commands as the command line, completion and YAML take them: all of it follows from their options (`dolma_dask.options`)."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from cyclopts import App, Group, Parameter

from dolma_dask.options.base import BAD, OUTPUT, OWN, WHAT, WHERE, Field, fields_of, members
from dolma_dask.options.command import Command
from dolma_dask.registry import VERBS


class Argument(NamedTuple):
    """An argument of a verb, as YAML gives it."""

    hint: Any  # its type, of texts, numbers, truth values, lists and maps
    needed: bool = False  # it has no default
    positional: bool = False  # it has a position in Python, and no name


def command_of(verb: Callable[..., Any]) -> Command:
    """Return what is known of a command."""
    return verb.command  # type: ignore[attr-defined, no-any-return]


def arguments_of(verb: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a verb by name, its own first."""
    known = command_of(verb)
    first = {name for name, kind in known.positions.items() if kind is inspect.Parameter.POSITIONAL_ONLY}
    return {
        field.name: Argument(in_words(field.hint, maps=True), field.is_needed, field.name in first)
        for field in known.fields
    }


def shared_arguments(options: Any) -> dict[str, Argument]:
    """Return the arguments that some options name."""
    return {field.name: Argument(in_words(field.hint, maps=True)) for field in fields_of(options)}


def in_words(hint: Any, maps: bool = False, text: Any = str) -> Any:
    """Return what is left of a type where objects cannot be given, but a `text` and, for files, `maps`."""
    kinds = members(hint)
    lists = [kind for kind in kinds if get_origin(kind) is Sequence]
    if not lists and str not in kinds:
        return hint
    found = [GenericAlias(Sequence, (in_words(get_args(lists[0])[0], maps, text),)) if lists else text]
    found += [NoneType] if NoneType in kinds and text is str else []
    if maps and any(get_origin(kind) is Mapping for kind in kinds):
        found.append(dict[str, Any])
    return reduce(or_, found)


def for_command_line(verb: Callable[..., Any], texts: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Return a verb as the command line takes it: words instead of objects; what may be given by name in Python must be.

    `texts`: types that some arguments have instead of str.
    """

    def command(*words: Any, **options: Any) -> Any:
        return verb(*words, **options)

    known, names = command_of(verb), spellings(verb)
    parameters = [
        inspect.Parameter(
            field.name,
            _kind(known, field),
            default=inspect.Parameter.empty if field.is_needed else field.default,
            annotation=annotated(field, names, (texts or {}).get(field.name, str)),
        )
        for field in known.fields
    ]
    command.__name__, command.__doc__ = known.name, _flowing(_spelled(_sections(known.doc)[""], names))
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def read_options(verb: Callable[..., Any], words: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command that words give, by name; none is needed.

    Raises `cyclopts.CycloptsError`: a word is none of them, or no value.
    """
    if not words:
        return {}

    def given(**options: Any) -> dict[str, Any]:
        return options

    known, names = command_of(verb), spellings(verb)
    fields = [field for field in known.fields if names[field.name].startswith("--")]
    given.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if field.is_needed else field.default,
                annotation=annotated(field, names),
            )
            for field in fields
        ]
    )
    app = App(name=f"dolma-dask {known.name}", default_command=given, help_flags=(), version_flags=())
    found: dict[str, Any] = app(
        list(words), result_action="return_value", exit_on_error=False, print_error=False
    )
    return found


def _kind(known: Command, field: Field) -> Any:
    """Return the kind of an argument on the command line, where only those without a name in Python have a position."""
    is_first = known.positions.get(field.name) is inspect.Parameter.POSITIONAL_ONLY
    return inspect.Parameter.POSITIONAL_ONLY if is_first else inspect.Parameter.KEYWORD_ONLY


_LAST = (WHAT, OUTPUT, BAD, WHERE)


@cache
def _group(title: str) -> Group:
    """Return a group of the help: that of a command's own options first, then others by name, and at the end those that commands share."""
    rank = 0 if title == OWN else 1 if title not in _LAST else 2 + _LAST.index(title)
    return Group(title, sort_key=(rank, title))


def annotated(field: Field, names: Mapping[str, str], text: Any = str, as_spelled: bool = False) -> Any:
    """Return the type of an option with what the command line has to know of it: its spelling of all `names`, and a `text` instead of str.

    `as_spelled`: a truth value has no second spelling with --no-.
    """
    more: dict[str, Any] = {"help": help_in_words(field, names)}
    if names[field.name].startswith("--"):
        more["group"] = _group(field.option.group)
    if as_spelled:
        more |= {"name": names[field.name], "negative": ""}
    if any(get_origin(kind) is Sequence for kind in members(field.hint)):
        more |= {"consume_multiple": True, "negative": "", "show_default": False}
    elif isinstance(field.default, bool):
        more["show_default"] = lambda value: "yes" if value else "no"
        more |= {"negative": "", "show_default": False} if field.option.is_flag else {}
    return Annotated[(in_words(field.hint, text=text), Parameter(**more), *field.extras)]


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


def meant_for(verb: Callable[..., Any], word: str, given: Collection[str]) -> str | None:
    """Return the option that a word without a name is likely meant for; None if there is none.

    Of those not `given` it is one that has the word among its choices, that has a position in Python, that is needed, that says where documents go, or that is a list.
    """
    known, names = command_of(verb), spellings(verb)
    own = VERBS.get(known.name)
    writes = own.writes if own and own.makes else ()
    named = [field for field in known.fields if names[field.name].startswith("--")]
    left = [field for field in named if names[field.name] not in given or field.name in known.positions]
    ranked: tuple[Callable[[Field], bool], ...] = (
        lambda field: any(
            get_origin(kind) is Literal and word in get_args(kind) for kind in members(field.hint)
        ),
        lambda field: field.name in known.positions,
        lambda field: field.is_needed,
        lambda field: field.name in writes,
        lambda field: any(get_origin(kind) is Sequence for kind in members(field.hint)),
    )
    left = [field for field in left if field.name != "skip"]  # nobody gives a word to have it passed over
    return next((names[field.name] for fits in ranked for field in left if fits(field)), None)


# ------------------------------------------------------------------------------------------------ help

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_COLUMNS = re.compile(r"\S {2,}\S")


def spellings(verb: Callable[..., Any]) -> dict[str, str]:
    """Return how the command line spells each argument of a command."""
    known = command_of(verb)
    return {
        field.name: field.name.upper()
        if _kind(known, field) is inspect.Parameter.POSITIONAL_ONLY
        else f"--{field.name.rstrip('_').replace('_', '-')}"
        for field in known.fields
    }


def help_in_words(field: Field, names: Mapping[str, str]) -> str:
    """Return what the help of the command line says of an option."""
    return " ".join(_spelled(field.option.help, names).split())


_IN_PYTHON = re.compile(r"\s*\b(?:In|From) Python\b[^.]*\.")
_VALUE = re.compile(r'`?\b(\w+)="([^"]*)"`?')
_QUOTED = re.compile(r"`(\w+)`")


def _spelled(text: str, names: Mapping[str, str]) -> str:
    """Return a text that speaks of arguments as Python does, as the command line does; what is of Python alone is left out."""
    text = _VALUE.sub(lambda found: f"{names[found[1]]} {found[2]}" if found[1] in names else found[0], text)
    return _QUOTED.sub(lambda found: names.get(found[1], found[0]), _IN_PYTHON.sub("", text))


def notes(verb: Callable[..., Any]) -> str:
    """Return the notes of a command's docstring as the command line shows them, empty if there are none."""
    return _flowing(_spelled(_sections(command_of(verb).doc).get("Notes", ""), spellings(verb)))


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
