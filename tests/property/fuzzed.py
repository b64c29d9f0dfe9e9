"""Many short texts of what rules look for and of characters of all planes, cheap and the same every time: 50,000 with `THOROUGH=1`."""

import json
import random

from oracles.code import STYLES
from oracles.code_secrets import LINES
from oracles.licenses import PIECES
from thorough import THOROUGH

from dolma_dask.testing.taggers import WILD_TEXTS

COUNT = 50_000 if THOROUGH else 200

LOOKED_FOR = (
    *LINES, *PIECES,
    # personal data
    "a.b@example.org", "x@y", "@", " (206) 555-0123", "206.555.0123", " 2065550123", "10.0.0.1", "256.1.2.255", "isbn", "doi", "#", "4111 1111 1111 1111",
    # prose and its rules
    "the", "The", "der die", "be", "to", "of", "lorem ipsum", "javascript", "{", "}", "...", "\u2026", "- ", "* ", "\u2022 ", "terms of use", "cookie policy", "read more", ".", "!", "?", '"',
    "\u201c", "\u201d", ".\u201d", "It ends.", "a", "ab", "aba", "abab", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u2028", "\x85", "\u3000", "\x00", "\x1c",
    # markup, broken encodings, data
    "<p>", "</div>", "<a href=x>", "&amp;", "&#160;", "[[a]]", "{{b|c}}", "== d ==", "\\section{e}", "\\alpha", ".SH", ".\\\" ", "\\fB", "\\(bu", "function() {", "};", '"k": "v"',
    "\u00c3\u00a9", "\u00e2\u20ac\u2122", "\u00c2\u00a0", "\ufffd", "[more]", "[...]", "0a1b" * 11, "QUJD1" * 9, "p\u0430yp\u0430l", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439", "\u03b1\u03b2\u03b3",
    # code
    "/*", "*/", "//", "--[[", "]]", "#!", "Copyright", "<?xml version=", "x" * 70, "0x1F", "12345", "_1", "\u00b2",
    # characters of several code points, and their parts
    "e\u0301", "\u0301", "\u200d", "\ufe0f", "\U0001f468\u200d\U0001f469", "\U0001f1eb", "\u0e01\u0e33", "\u0130", "\u00df", "\ufb01", "\u1e9e", "\u3007", "\u2167", "\u0663",
    "\u65e5\u672c\u8a9e", "\ud55c\uad6d", "\U00020000", "\ue000", "\uffff", "\U0010ffff",
)  # fmt: skip
ENDS = (0x80, 0x300, 0x800, 0x3000, 0xD800, 0x10000, 0x20000, 0x30000, 0xF0000, 0x110000)


def fuzzed_texts(seed=0):
    """Return texts of few different pieces each, so that words, lines and n-grams repeat."""
    draw = random.Random(seed)
    texts = list(WILD_TEXTS)
    while len(texts) < COUNT:
        pieces = [draw.choice(LOOKED_FOR) for _ in range(draw.randrange(1, 6))]
        pieces += [character(draw) for _ in range(draw.randrange(4))]
        pieces += draw.choices(" \n", k=draw.randrange(3))
        texts.append("".join(draw.choices(pieces, k=draw.randrange(13))))
    return texts[:COUNT]


def character(draw):
    """Return one of a plane as likely as of another; what no text may have, a surrogate, is a replacement character."""
    code = draw.randrange(draw.choice(ENDS))
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def metadata_of(draw, text):
    """Return fields that taggers read, some of them missing or null."""
    fields = {
        "html": text,
        "language": draw.choice(["en", "de", "xx", None]),
        "ext": draw.choice([*STYLES, "zzz", None]),
        "max_stars_count": draw.choice([3, 0, None, 2.5]),
        "url": f"https://example.org/{text}",
        "bucket": draw.choice(["head", "tail", "other", None]),
        "perplexity": draw.choice([312.4, None]),
    }
    return json.dumps({name: value for name, value in fields.items() if draw.random() < 0.7})
