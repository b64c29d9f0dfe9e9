"""Write types and docstrings of the public names for type checkers, editors and the documentation, which see neither behind a decorator.

python tools/stubs.py          write dolma_dask/__init__.pyi anew, after options of a command or public names have changed
"""

import subprocess
import sys
from collections.abc import Collection, Iterator
from inspect import Parameter, cleandoc
from pathlib import Path
from textwrap import indent
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dolma_dask
from dolma_dask.options.command import Command
from dolma_dask.pipelines.signatures import command_of
from dolma_dask.registry import COMMANDS, load

STUB = Path(dolma_dask.__file__).with_suffix(".pyi")

HEAD = '''"""Public names with their types and docstrings. Made by tools/stubs.py of the options of commands; do not edit."""

'''


def stub() -> str:
    """Return the stub of the package: a function with all its arguments and its docstring for each command, an import for every other public name."""
    types, imports, functions = Types(), [], []
    for name, path in sorted(dolma_dask._EXPORTS.items()):
        value = load(path)
        if hasattr(value, "command") or path in {entry.function for entry in COMMANDS.values()}:
            functions.append(definition(command_of(value), value.__doc__, types))
        else:
            module, _, item = path.partition(":")
            imports.append(f"from {module} import {item} as {name}")
    lines = [
        *types.imports(dolma_dask._EXPORTS),
        *imports,
        "__version__: str",
        "__all__: list[str]",
        *functions,
    ]
    return formatted(HEAD + "\n".join(lines) + "\n")


def definition(command: Command, doc: str, types: "Types") -> str:
    """Return a command as a function of its docstring alone."""
    parameters = list(command.signature().parameters.values())
    texts, last = [], None
    for item in parameters:
        if last is Parameter.POSITIONAL_ONLY and item.kind is not last:
            texts.append("/")
        if item.kind is Parameter.KEYWORD_ONLY and last is not item.kind:
            texts.append("*")
        kind = types.spelled(item.annotation)
        default = "" if item.default is item.empty else f" = {shown(item.default, kind)}"
        texts.append(f"{item.name}: {kind}{default}")
        last = item.kind
    texts += ["/"] if last is Parameter.POSITIONAL_ONLY else []
    head = f"def {command.name}({', '.join(texts)}) -> {types.spelled(command.returns)}:"
    body = '"""' + cleandoc(doc).replace("\\", "\\\\") + '\n"""'
    return f"{head}\n{indent(body, '    ')}\n"


def shown(default: Any, kind: str) -> str:
    """Return a default as an editor shows it."""
    is_plain = isinstance(default, str | int | float | tuple) or default is None
    return repr(default) if is_plain else "..."


class Types:
    """Types as they are written, and what has to be imported for it."""

    def __init__(self) -> None:
        self.modules: dict[str, str] = {}

    def imports(self, public: Collection[str]) -> Iterator[str]:
        """Yield an import for each type that was named, but those that are public names themselves."""
        for name, module in sorted(self.modules.items()):
            if name not in public:
                yield f"from {module} import {name}"

    def spelled(self, hint: Any) -> str:
        """Return a type as it is written."""
        origin = get_origin(hint)
        if hint in (None, NoneType):
            return "None"
        if hint is Ellipsis:
            return "..."
        if isinstance(hint, list):
            return f"[{', '.join(map(self.spelled, hint))}]"
        if origin in (Union, UnionType):
            return " | ".join(map(self.spelled, get_args(hint)))
        if origin is Literal:
            return f"{self.named(Literal)}[{', '.join(map(repr, get_args(hint)))}]"
        if origin is not None:
            return f"{self.named(origin)}[{', '.join(map(self.spelled, get_args(hint)))}]"
        return self.named(hint)

    def named(self, kind: Any) -> str:
        """Return the name of a class, and remember where it is from."""
        name, module = getattr(kind, "__name__", None) or kind._name, kind.__module__
        if module != "builtins" and self.modules.setdefault(name, module) != module:
            raise ValueError(f"two types are named {name}: of {self.modules[name]} and {module}")
        return str(name)


def formatted(text: str) -> str:
    """Return a stub as the linter and the formatter want it."""
    for words in (("check", "--select", "I", "--fix", "--quiet"), ("format",)):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub())
