"""References between values of a configuration, as OmegaConf writes them: ``${streams[0].name}``, ``${.name}``, ``${oc.env:HOME}``."""

import os
import re
from dataclasses import dataclass, replace

from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Scalar, moved

MOST_DEEP = 20
"""References behind each other; more lead back to themselves."""

_REFERENCE = re.compile(r"\$\{([^${}]+)\}")


@dataclass(frozen=True)
class Interpolation:
    """Values of the form ``${streams[0].name}``, ``${.name}``, ``${oc.env:HOME}``, ``${oc.env:OUT,out}`` and ``${d.processes:2}``."""

    root: Node
    mistakes: Mistakes
    depth: int = 0

    def resolve(self, node: Node, path: tuple[str, ...]) -> Node:
        """Return a node with all references replaced; `path` leads to it."""
        if isinstance(node, Items):
            return replace(
                node, items=tuple(self.resolve(item, (*path, str(at))) for at, item in enumerate(node.items))
            )
        if isinstance(node, Pairs):
            return replace(
                node, values={key: self.resolve(item, (*path, key)) for key, item in node.values.items()}
            )
        alone = _REFERENCE.fullmatch(node.text)
        if alone:
            return moved(self.look_up(alone[1], node, path), node.place)
        return replace(node, text=_REFERENCE.sub(lambda found: self.text(found[1], node, path), node.text))

    def text(self, reference: str, node: Scalar, path: tuple[str, ...]) -> str:
        value = self.look_up(reference, node, path)
        if isinstance(value, Scalar):
            return value.text
        self.mistakes.add(node.place, f"${{{reference}}} is a list or map; expected a text inside of a text.")
        return ""

    def look_up(self, reference: str, node: Scalar, path: tuple[str, ...]) -> Node:
        resolver, colon, argument = reference.partition(":")
        if colon:
            return self.call(resolver.strip(), argument, node)
        found = self.follow(reference.strip(), path)
        if found is None or self.depth > MOST_DEEP:
            why = "leads back to itself" if found is not None else "leads to nothing"
            self.mistakes.add(
                node.place,
                f"${{{reference}}} {why}; expected the path of a value, such as ${{streams[0].name}}.",
            )
            return Scalar("", False, node.place)
        value, at = found
        return replace(self, depth=self.depth + 1).resolve(value, at)

    def follow(self, reference: str, path: tuple[str, ...]) -> tuple[Node, tuple[str, ...]] | None:
        """Return the value at a path, and the whole path."""
        steps = tuple(re.findall(r"[^.\[\]]+", reference))
        up = len(reference) - len(reference.lstrip("."))
        whole = (*path[: len(path) - up], *steps) if up else steps
        node = self.root
        for step in whole:
            if isinstance(node, Pairs) and step in node.values:
                node = node.values[step]
            elif isinstance(node, Items) and step.isdigit() and int(step) < len(node.items):
                node = node.items[int(step)]
            else:
                return None
        return node, whole

    def call(self, resolver: str, argument: str, node: Scalar) -> Scalar:
        if resolver in ("oc.env", "env"):
            name, comma, otherwise = argument.partition(",")
            value = os.environ.get(name.strip(), otherwise.strip() if comma else None)
            if value is not None:
                return Scalar(value, True, node.place)
            self.mistakes.add(
                node.place,
                f"the environment variable {name.strip()} is not set; set it, or write ${{oc.env:{name.strip()},otherwise}}.",
            )
        elif resolver == "d.processes" and argument.strip().isdigit():
            return Scalar(str(max(1, (os.cpu_count() or 1) - int(argument))), True, node.place)
        else:
            self.mistakes.add(
                node.place,
                f"${{{resolver}:...}} is not known here; expected a path, oc.env:NAME or d.processes:N.",
            )
        return Scalar("", False, node.place)
