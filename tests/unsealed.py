"""Journals as a test changes them: a line that is changed needs another digest, or none as those of earlier releases."""

import re


def unsealed(text: str) -> str:
    """Return the lines of a journal without their digests."""
    return re.sub(r',"check":"[0-9a-f]{16}"\}$', "}", text, flags=re.MULTILINE)
