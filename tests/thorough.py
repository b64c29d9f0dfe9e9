"""Effort of the tests: ordinary runs show each law a few examples, `THOROUGH=1` ten times as many."""

import os

THOROUGH = os.environ.get("THOROUGH") == "1"


def examples(number: int) -> int:
    """Return how many examples a law is shown that has `number` in an ordinary run."""
    return 10 * number if THOROUGH else number
