"""Variables of a configuration file: ``${name}``, ``${env:NAME}``, and ``:-`` with what stands in for a missing one.

A text that is nothing but one variable is that variable's value, with its type; within a text the value is put in. ``$${`` is a plain ``${``.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Place, Scalar, moved
from dolma_dask.errors import UsageError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\$\{|\$\{(?:(env:)?([A-Za-z_][A-Za-z0-9_]*)(:-[^{}]*)?\}|)")
_ENVIRONMENT = "env:"
_OTHERWISE = ":-"


@dataclass
class Variables:
    """What ``${...}`` stands for.

    Parameters
    ----------
    declared : Mapping[str, Node]
        The block ``variables:`` of the file.
    given : Mapping[str, Node]
        Values from the command line, which count more.
    mistakes : Mistakes
        Gets what is undefined.
    """

    declared: Mapping[str, Node]
    given: Mapping[str, Node]
    mistakes: Mistakes
    _open: list[str] = field(default_factory=list)

    def resolve(self, node: Node) -> Node:
        """Return a node with all variables replaced, in lists and maps too."""
        if isinstance(node, Items):
            return replace(node, items=tuple(map(self.resolve, node.items)))
        if isinstance(node, Pairs):
            return replace(node, values={key: self.resolve(value) for key, value in node.values.items()})
        alone = _REFERENCE.fullmatch(node.text)
        if alone and alone[2]:
            return self._value(alone, node)
        return replace(node, text=_REFERENCE.sub(lambda found: self._put_in(found, node), node.text))

    def _put_in(self, found: re.Match[str], node: Scalar) -> str:
        if found[0] == "$${":
            return "${"
        if found[2] is None:
            self.mistakes.add(
                node.place,
                f"{node.text!r}: expected ${{name}}, ${{name:-otherwise}}, ${{env:NAME}} or ${{env:NAME:-otherwise}}; "
                "a plain ${ is written $${.",
            )
            return found[0]
        value = self._value(found, node)
        if isinstance(value, Scalar):
            return value.text
        self.mistakes.add(
            node.place, f"${{{found[2]}}} is a list, which cannot be put into a text; expected it alone."
        )
        return found[0]

    def _value(self, found: re.Match[str], node: Scalar) -> Node:
        """Return what a reference stands for, as if it stood where the reference is."""
        is_environment, name = found[1] is not None, found[2]
        otherwise = None if found[3] is None else Scalar(found[3].removeprefix(_OTHERWISE), True, node.place)
        if is_environment:
            text = os.environ.get(name)
            if text is not None:
                return Scalar(text, True, node.place)
            if otherwise is None:
                self.mistakes.add(
                    node.place,
                    f"the environment variable {name} is not set; expected a value. Set it, or write ${{env:{name}:-otherwise}}.",
                )
            return otherwise or Scalar("", False, node.place)
        return self._named(name, otherwise, node)

    def _named(self, name: str, otherwise: Scalar | None, node: Scalar) -> Node:
        value = self.given.get(name, self.declared.get(name))
        if value is not None and isinstance(value, Scalar) and value.is_nothing:
            if otherwise is None:
                self.mistakes.add(node.place, f"${{{name}}} has no value; give it one: --set {name}=VALUE.")
            return otherwise or Scalar("", False, node.place)
        if value is None:
            if otherwise is None:
                self.mistakes.add(
                    node.place, f"${{{name}}} is not defined; {near(name, self.declared, 'variables:')}"
                )
            return otherwise or Scalar("", False, node.place)
        if name in self._open:
            self.mistakes.add(
                node.place, f"${{{name}}} is defined by itself: {' -> '.join([*self._open, name])}."
            )
            return Scalar("", False, node.place)
        self._open.append(name)
        try:
            return moved(self.resolve(value), node.place)
        finally:
            self._open.pop()


def near(name: str, known: Iterable[str], where: str) -> str:
    """Return what to do about an unknown name: the nearest one that is valid, else all of them."""
    names = list(known)
    found = get_close_matches(name, names, n=1, cutoff=0.5)
    if found:
        return f"did you mean {found[0]!r}?"
    return f"expected one of {', '.join(names)}." if names else f"there are none; declare it under {where}"


def variables_of(block: Node | None, given: Mapping[str, str], mistakes: Mistakes) -> Variables:
    """Return the variables of a file.

    Parameters
    ----------
    block : Node or None
        What stands under ``variables:``.
    given : Mapping[str, str]
        Values from the command line or from Python.
    mistakes : Mistakes
        Gets what is no name or no value, and given names that the file does not declare.
    """
    declared: dict[str, Node] = {}
    if isinstance(block, Pairs):
        for name, value in block.values.items():
            if not NAME.fullmatch(name):
                mistakes.add(
                    block.keys[name], f"{name!r} is no name of a variable; expected letters, digits and _."
                )
            elif isinstance(value, Pairs):
                mistakes.add(
                    value.place, f"variables.{name} is a map; expected a text, a number or a list of them."
                )
            else:
                declared[name] = value
    elif block is not None and not (isinstance(block, Scalar) and block.is_nothing):
        mistakes.add(
            block.place, "`variables:` expects a map of names and values, such as `out: corpus/wiki`."
        )
    for name in given:
        if name not in declared:
            mistakes.add(
                Place(), f"--set {name}: the file has no such variable; {near(name, declared, 'variables:')}"
            )
    return Variables(declared, {name: Scalar(text) for name, text in given.items()}, mistakes)


def settings(asked: object) -> dict[str, str]:
    """Return values for variables as texts: from ``["name=value"]`` of the command line, or a map from Python.

    Raises
    ------
    UsageError
        One is neither.
    """
    if isinstance(asked, Mapping):
        return {str(name): _spelled(name, value) for name, value in asked.items()}
    words = [asked] if isinstance(asked, str) else asked
    if not isinstance(words, Iterable):
        raise UsageError(f"variables={asked!r}; expected a map such as {{'out': 'corpus/wiki'}}.")
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = str(word).partition("=")
        if not sign or not NAME.fullmatch(name):
            raise UsageError(f"--set {word!r}; expected NAME=VALUE, such as --set out=corpus/wiki.")
        if name in found:
            raise UsageError(f"--set gives {name!r} twice; expected each variable once.")
        found[name] = value
    return found


def _spelled(name: object, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str | int | float | os.PathLike):
        return "" if value is None else str(value)
    raise UsageError(f"variables[{name!r}]={value!r}; expected a text, a number or a truth value.")
