"""Helpers for tests, plug-in authors and the demo: begin with `TaggerTests` for a tagger, with `VerbLaws` for a verb."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dolma_dask.testing.taggers import TaggerTests as TaggerTests
    from dolma_dask.testing.verb_laws import Case as Case
    from dolma_dask.testing.verb_laws import VerbLaws as VerbLaws

_HOMES = {"TaggerTests": "taggers", "VerbLaws": "verb_laws", "Case": "verb_laws"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    try:
        import pytest
    except ModuleNotFoundError as error:
        raise ImportError(f"dolma_dask.testing.{name} needs pytest: pip install pytest") from error

    home = f"{__name__}.{_HOMES[name]}"
    pytest.register_assert_rewrite(home)  # else a failed assertion does not say with which values
    return getattr(importlib.import_module(home), name)
