"""pyarrow without pandas, until something imports pandas itself.

pyarrow imports pandas (0.2 CPU-seconds) to look whether the first list that becomes an array is one of its series. Once, it gets the answer that there is
no pandas; as soon as pandas is imported, by whomever, pyarrow looks again, so series and frames are taken as ever.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pyarrow as pa


class _Watch:
    """An import hook that waits for pandas."""

    hides = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.hides:
            raise ImportError("pandas is not needed yet", name=name)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                know_pandas()  # it tries again where it cannot do without

            loader.exec_module = exec_module
        return spec


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas; do nothing where it is loaded already."""
    if "pandas" in sys.modules:
        return
    watch = _Watch()
    sys.meta_path.insert(0, watch)
    pa.array([0])
    watch.hides = False


def know_pandas() -> None:
    """Let pyarrow import pandas now. It looks for it once without a lock: a thread that comes in between would take series for plain sequences."""
    pa.array([0]).to_pandas()
