"""Chat templates: dialogues to the text that a model is trained on, as ``apply_chat_template`` of transformers makes it.

A template is Jinja2, run in a sandbox. The same dialogue gives the same text on any day, so a template that asks for today's date
(``strftime_now``) is refused. Words of the template are its author's: special tokens in them are meant. Those in the texts of a dialogue are
somebody else's, and are hidden from the tokenizer unless they are meant too.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.findings import SPELLED
from dolma_dask.text import compute as pc
from dolma_dask.tokens.encoding import Finding, Tokens, replaced
from dolma_dask.tokens.engine import TokenEngine, build
from dolma_dask.tokens.records import Unusable, column
from dolma_dask.tokens.specials import CONFIG_NAME, read_config

Message = dict[str, Any]
"""A turn of a dialogue: ``role``, ``content`` and what else the record has."""

TEMPLATE_NAME = "chat_template.jinja"
"""File of a template beside a tokenizer, where it is not in the config."""

SUFFIX = ".jinja"
"""End of the names of files that can only be templates."""

GIVEN = "chat_template"
"""What messages call a template that was given by itself: the name of the option."""

_EXPECTED = "expected Jinja2, such as {% for message in messages %}{{ message['content'] }}{% endfor %}, or the path of a file that has it"


class Template(Struct, frozen=True):
    """A chat template and the special tokens that it may name."""

    source: str  # Jinja2
    name: str  # where it is from, for messages
    tokens: tuple[tuple[str, str], ...] = ()  # such as ``bos_token``, and its spelling

    def render(self, messages: Sequence[Message], **more: str) -> str:
        """Return the text of a dialogue; `more` are further variables.

        Raises `Unusable`: the template refuses it or fails. Raises `UsageError`: the template is no Jinja2.
        """
        write, context = _compiled(self).root_render_func, _context(self, tuple(more.items()), get_ident())
        context.vars.clear()
        context.exported_vars.clear()
        context.parent["messages"] = messages
        try:
            return "".join(write(context))
        except Exception as error:  # noqa: BLE001  a template may raise anything
            _context.cache_clear()  # it was left wherever it stood
            if isinstance(error, RefusalError):
                raise Unusable(f"a dialogue that {self.name} refuses: {error}") from None
            raise Unusable(f"a dialogue that {self.name} cannot render: {error}{_advice(error)}") from None


LLAMA = Template(
    "{% for message in messages %}{% if message['role'] == 'system' %}<<SYS>> {{ message['content'] }} <</SYS>> "
    "{% elif message['role'] == user_role %}{% if loop.previtem is defined and loop.previtem['role'] == assistant_role %} {% endif %}"
    "[INST] {{ message['content'] }} [/INST] {% elif message['role'] == assistant_role %}{{ message['content'] }}"
    "{% else %}{{ raise_exception('role ' ~ message['role'] ~ ' is none of system, ' ~ user_role ~ ', ' ~ assistant_role) }}{% endif %}{% endfor %}",
    "the template [INST] [/INST]",
)
"""Template of tokenizers that have none; it takes the names of the roles as variables ``user_role`` and ``assistant_role``."""


def find_template(engine: TokenEngine, given: str | None = None) -> Template:
    """Return the template that is given, by itself or by the path of its file, else that of the tokenizer, else `LLAMA`.

    Raises `UsageError`: it is no Jinja2, the file is missing, or the tokenizer has several and none is called ``default``.
    """
    config = read_config(engine)
    tokens = tuple(sorted(_special_tokens(config)))
    found = _own(engine, config) if given is None else _given(given)
    template = LLAMA if found is None else Template(*found, tokens)
    _compiled(template)
    return template


def _given(value: str) -> tuple[str, str]:
    """Return the template that was given, and what to call it."""
    is_file = os.path.isfile(value)  # noqa: PTH113  False, and no error, for a template too long for a path
    if not is_file and value.endswith(SUFFIX):
        raise UsageError(f"{GIVEN} {value}: there is no such file; {_EXPECTED}.")
    source, name = (_read(Path(value)), f"the template in {Path(value).name}") if is_file else (value, GIVEN)
    if "{" not in source:
        found = f"in {value} there" if is_file else f"{value!r}"
        raise UsageError(f"{GIVEN}: {found} is no template, which would write a dialogue; {_EXPECTED}.")
    return source, name


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 ({error}); expected a chat template in Jinja2.") from error


def _special_tokens(config: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in config.items():
        content = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(content, str):
            yield name, content


def _own(engine: TokenEngine, config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the template that the tokenizer has, if it has one, and what to call it; its file goes before its config."""
    if engine.path is not None and (file := Path(engine.path).with_name(TEMPLATE_NAME)).is_file():
        return _read(file), f"the template in {TEMPLATE_NAME}"
    known, name = config.get("chat_template"), f"the template in {CONFIG_NAME}"
    if not isinstance(known, list):
        return (known, name) if isinstance(known, str) and known else None
    named = {
        one["name"]: one["template"]
        for one in known
        if isinstance(one, dict) and {"name", "template"} <= one.keys()
    }
    if not isinstance(named.get("default"), str):
        raise UsageError(
            f"{CONFIG_NAME} of {engine.name} has the templates {', '.join(named) or 'of no name'}; expected one called default. Give one: chat_template."
        )
    return str(named["default"]), name


class RefusalError(Exception):
    """A template has called ``raise_exception``."""


def _refuse(message: str) -> None:
    raise RefusalError(message)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Write JSON without the escapes for HTML that Jinja2's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _advice(error: Exception) -> str:
    if "strftime_now" not in str(error):
        return ""
    return " (today's date would give other tokens every day; expected a template without it)"


@lru_cache(maxsize=8)
def _compiled(template: Template) -> Any:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Marks around what assistants say, which leave the text as it is."""

        tags = {"generation"}  # noqa: RUF012  Jinja2's own

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(template.source)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(
            f"{template.name} is no Jinja2: line {error.lineno}: {error.message}; expected a chat template as transformers has it."
        ) from error


@lru_cache(maxsize=64)
def _context(template: Template, more: tuple[tuple[str, str], ...], thread: int) -> Any:
    """Return what a template knows but the messages, for all dialogues that a thread writes: it takes as long as to write one."""
    given = {"tools": None, "documents": None, "add_generation_prompt": False}
    return _compiled(template).new_context({**given, **dict(template.tokens), **dict(more)})


_OPEN, _CLOSE, PLACE = "\U0010fffe", "\U0010ffff", "\U000ffffe"
"""Marks around the number of a special token that a text spells out, and in place of an answer: noncharacters, which Unicode keeps out of texts."""

RESERVED = (_OPEN, _CLOSE, PLACE)
"""Characters that contents of dialogues may not have."""

_FIRST = 0x100000
"""Code point (private use) of the number 0."""


class Control(Struct, frozen=True, dict=True):
    """Special tokens of a tokenizer, hidden in texts of dialogues and meant in a template. Added tokens that are no special ones, such as
    ``</think>``, are left to the template, which may look for them.
    """

    engine: TokenEngine

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Spellings of the tokens; none if all are meant."""
        return () if self.engine.in_text == "encode" else _control_names(self.engine)

    def hide(self, texts: Iterable[str]) -> list[str]:
        """Put marks in place of special tokens that texts spell out."""
        names = self.names
        if not names:
            return list(texts)
        marks = {name: f"{_OPEN}{chr(_FIRST + number)}{_CLOSE}" for number, name in enumerate(names)}
        pattern = _any_of(names)
        return [pattern.sub(lambda found: marks[found[0]], text) for text in texts]

    def hide_others(self, turn: Message) -> None:
        """Do the same with all strings of a turn but its content and role."""
        if self.names and len(turn) > 2:
            turn |= {
                name: self._hidden(value) for name, value in turn.items() if name not in ("role", "content")
            }

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide([value])[0]
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        return {key: self._hidden(item) for key, item in value.items()} if isinstance(value, dict) else value

    def found(self, text: str) -> Counter[str]:
        """Count the special tokens in a rendered text that are not hidden."""
        return Counter(_any_of(self.names).findall(text))

    def encode(self, rendered: pa.LargeStringArray) -> Tokens:
        """Encode rendered texts: special tokens are meant, those that are hidden are text. Documents with such are among the findings."""
        names, engine = self.names, replace(self.engine, in_text="encode")
        if not names or not pc.any(pc.match_substring(rendered, _OPEN)).as_py():
            return engine.encode(rendered)
        texts = rendered.to_pylist()
        hidden = [_hidden_in(text, names) for text in texts]
        shown = ["" if found else text for text, found in zip(texts, hidden, strict=True)]
        tokens = engine.encode(column(shown))
        found = {
            row: Finding(row, SPELLED, " ".join(spelled)) for row, spelled in enumerate(hidden) if spelled
        }
        if not found:
            return tokens
        ids = {row: self._ids(texts[row], names) for row in found}
        return Tokens(*replaced(tokens, ids), (*tokens.findings, *found.values()))

    def _ids(self, text: str, names: Sequence[str]) -> NDArray[Any]:
        """Encode a text between its special tokens, each part with what is hidden in it."""
        plain = replace(self.engine, in_text="text")
        parts: list[NDArray[Any]] = []
        for part in re.split(f"({_any_of(names).pattern})", text):
            if part in names:
                parts.append(np.array([self.engine.token_id(part)], self.engine.dtype))
            else:
                shown = _MARK.sub(lambda found: names[ord(found[1]) - _FIRST], part)
                parts.append(plain.encode(column([shown])).ids)
        return np.concatenate(parts)


@lru_cache(maxsize=8)
def _control_names(engine: TokenEngine) -> tuple[str, ...]:
    added = build(engine).added
    numbers = [] if added is None else np.flatnonzero(added.is_control).tolist()
    return tuple(name for number in numbers if (name := engine.token(number)))


_MARK = re.compile(f"{_OPEN}(.){_CLOSE}", re.DOTALL)


def _hidden_in(text: str, names: Sequence[str]) -> list[str]:
    """Return the special tokens that are hidden in a text."""
    return list(dict.fromkeys(names[ord(number) - _FIRST] for number in _MARK.findall(text)))


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    return _compiled_names(tuple(names))


@lru_cache(maxsize=8)
def _compiled_names(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
