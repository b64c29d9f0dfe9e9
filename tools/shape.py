"""Figures of the package's shape: lines, modules, imports, and how many modules each command stands on.

    python tools/shape.py [--readers]

Imports are counted from the sources, those inside of functions too. The closure of a command is its module with all that it imports, directly or not,
at the top of modules. ``--readers`` lists the modules below 100 lines that one module of the same folder alone imports: candidates for folding.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "dolma_dask"
SMALL = 100
"""Lines of a small module."""


def modules() -> dict[str, Path]:
    """Return the modules of the package by name."""
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(nodes: Iterable[ast.AST], inside: bool) -> Iterator[str]:
    """Yield the names that statements import, those `inside` of functions too if asked; what type checkers alone read is left out."""
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{name.name}" for name in names)
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from imported(node.orelse, inside)
            case ast.FunctionDef() if not inside:
                pass
            case _:
                yield from imported(ast.iter_child_nodes(node), inside)


def graph(known: dict[str, Path], inside: bool) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports."""
    arrows = {}
    for name, path in known.items():
        names = imported(ast.parse(path.read_text()).body, inside)
        targets = {one if one in known else one.rpartition(".")[0] for one in names}
        arrows[name] = {one for one in targets if one in known and one != name}
    return arrows


def closure(name: str, arrows: dict[str, set[str]]) -> set[str]:
    """Return all that a module imports, with the packages above, and itself."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in seen or one == PACKAGE:
            continue
        seen.add(one)
        waiting += [*arrows[one], one.rpartition(".")[0]]
    return seen


def main(arguments: list[str]) -> None:
    """Print the figures."""
    from dolma_dask.registry import VERBS

    known = modules()
    arrows, at_top = graph(known, inside=True), graph(known, inside=False)
    lines = {name: len(path.read_text().splitlines()) for name, path in known.items()}
    tests = sum(len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    count = len(known)
    print(
        f"package {sum(lines.values()):,} lines, {count} modules, {sum(map(len, arrows.values())) / count:.2f} imports per module"
    )
    print(f"tests {tests:,} lines")
    for verb in VERBS.values():
        module = verb.function.partition(":")[0]
        print(f"{verb.name:<10} stands on {len(closure(module, at_top)):>3} modules")
    if "--readers" in arguments:
        for name in known:
            readers = [one for one in arrows if name in arrows[one]]
            if (
                lines[name] < SMALL
                and len(readers) == 1
                and readers[0].rpartition(".")[0] == name.rpartition(".")[0]
            ):
                print(f"{lines[name]:>3} {name} <- {readers[0]}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
