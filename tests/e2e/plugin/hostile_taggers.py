"""Taggers of a plug-in, found by whoever has this folder in PYTHONPATH: one that tarries, one that kills its process."""

import os
import time

from dolma_dask.taggers.registry import tagger


@tagger(name="tarry_v1", types="tarried", version=1)
def tarry_v1(text: str) -> float:
    """Take TARRY_S seconds over each text that says so, in steps, as slow Python code does."""
    end = time.monotonic() + float(os.environ.get("TARRY_S", "0")) * ("tarry" in text)
    while time.monotonic() < end:
        time.sleep(0.02)
    return float("tarry" in text)


@tagger(name="deadly_v1", types="lived", version=1)
def deadly_v1(text: str) -> float:
    """End the process at each text that holds poison, as a crash in native code does."""
    if "poison" in text:
        os._exit(1)
    return 1.0
