"""Outcomes as values that JSON knows."""

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no UTF-8 can hold."""


def plain(value: Any) -> Any:
    """Turn records, arrays and mappings into what JSON knows; infinite numbers are the strings ``Infinity`` and ``-Infinity``."""
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # of NumPy
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a script element: no ``<``, ``>`` or ``&`` in it, and nothing that is no number."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
