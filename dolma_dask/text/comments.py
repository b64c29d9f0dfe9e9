"""Comments of source code and text of web pages, found by their signs alone: no parser, so that code that is broken or of another version has comments too.

Every pattern takes a time that is linear in the length of the code. Rules: a comment ends with its sign, with its line (the newline counts where `Style.newlines` says so), or not at
all, in which case it is none; strings end at their quote or, but for those of several lines, with their line.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import unescape
from inspect import cleandoc

from msgspec import Struct


class Style(Struct, frozen=True):
    """How comments of a language are written."""

    lines: tuple[str, ...] = ()  # signs of those that end with their line
    blocks: tuple[tuple[str, str], ...] = ()  # signs around others
    quotes: str = "\"'"  # signs around strings, in which there are no comments; ` those of several lines
    newlines: bool = False


_C, _HASH, _DASH = ("/*", "*/"), Style(("#",)), Style(("--",), quotes='"')
_STYLES = {
    "c h cpp cc cxx hpp hh hxx cu cuh mm": Style(("//",), (_C,), newlines=True),
    "java kt kts scala groovy cs swift dart proto go rs": Style(("//",), (_C,), '"'),
    "js jsx es6 jsm ts tsx": Style(("//",), (_C,), "\"'`"),
    "php": Style(("//", "#"), (_C,)),
    "css": Style((), (_C,)),
    "scss less": Style(("//",), (_C,)),
    "sh bash zsh ksh": Style(("#",), newlines=True),
    "fish rb pl pm r jl yaml yml toml cmake mk mak Makefile dockerfile Dockerfile tf hcl coffee nix awk tcl": _HASH,
    "ini cfg": Style((";", "#"), quotes=""),
    "sql ddl": Style(("--",), (_C,), newlines=True),
    "lua": Style(("--",), (("--[[", "]]"),)),
    "hs elm": Style(("--",), (("{-", "-}"),), '"'),
    "ada adb ads vhd vhdl": _DASH,
    "lisp lsp el clj cljs scm rkt asm nasm": Style((";",), quotes='"'),
    "tex sty ltx erl hrl": Style(("%",), quotes=""),
    "f90 f95 f03 f08": Style(("!",)),
    "ml mli": Style((), (("(*", "*)"),), '"'),
    "pas dpr lpr": Style(("//",), (("{", "}"), ("(*", "*)")), "'"),
    "html htm xhtml xht xml svg xsd xsl xslt": Style((), (("<!--", "-->"),), ""),
    "md markdown txt json geojson csv": Style(),
}
_NAMES = {"javascript": "js", "kotlin": "kt", "ruby": "rb", "rust": "rs", "shell": "sh", "typescript": "ts"}
"""Extensions of languages that examples in Markdown name otherwise."""

PYTHON = frozenset(["py", "pyw", "bzl", "wsgi"])
MARKDOWN = frozenset(["md", "markdown"])
JAVA_FAMILY = frozenset(["java", "js", "es6", "jsm"])
"""Extensions of Java and JavaScript."""
HTML = frozenset(["html", "htm", "xhtml", "xht"])


@cache
def styles() -> Mapping[str, Style]:
    """Return how comments are written by the extension of a file; Python has rules of its own, `python_prose`."""
    return {extension: style for extensions, style in _STYLES.items() for extension in extensions.split()}


def count_comments(code: str, extension: str) -> int:
    """Count the characters of comments, with their signs; of Python those of `python_prose`, of Markdown those of its examples."""
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    if extension in PYTHON:
        return len(python_prose(code))
    if extension in MARKDOWN:
        return sum(_count_example(name, example) for name, example in _examples(code))
    style = styles()[extension]
    if not style.lines and not style.blocks:
        return 0
    closing = dict(style.blocks)
    return sum(_lengths(_pattern(style), closing, code))


_FENCE = re.compile(r"^[ \t]*+```(\w*+)$", re.MULTILINE)


def _examples(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the code of examples in Markdown: between a line of ``` with a name and the next one without."""
    name, start = None, 0
    for fence in _FENCE.finditer(text):
        if name is None:
            name, start = fence[1], fence.end()
        elif not fence[1]:
            yield name, text[start : fence.start()]
            name = None


def _count_example(name: str, code: str) -> int:
    if name in ("py", "python"):
        return sum(len(found["comment"] or "") for found in _CODE.finditer(code))
    extension = _NAMES.get(name, name)
    return count_comments(code, extension) if extension in styles() and extension not in MARKDOWN else 0


@cache
def _pattern(style: Style) -> re.Pattern[str]:
    """Return a pattern of signs that begin a block, comments of a line, and strings."""
    signs = "|".join(re.escape(sign) for sign, _ in style.blocks) or "(?!)"
    lines = "|".join(re.escape(sign) for sign in style.lines) or "(?!)"
    strings = [
        rf"{quote}(?:[^{quote}\\]++|\\.?)*+"
        if quote == "`"
        else rf"{quote}(?:[^{quote}\\\n]++|\\.?)*+{quote}?+"
        for quote in style.quotes
    ]
    newline = r"\n?+" if style.newlines else ""
    return re.compile(
        rf"(?P<block>{signs})|(?P<line>(?:{lines})[^\n]*+{newline})|(?:{'|'.join(strings) or '(?!)'})",
        re.DOTALL,
    )


def _lengths(pattern: re.Pattern[str], closing: Mapping[str, str], code: str) -> Iterator[int]:
    """Yield the length of each comment."""
    at, open_signs = 0, set[str]()  # signs behind which no comment ends
    while found := pattern.search(code, at):
        at = found.end()
        sign = found.group("block")
        if found.group("line"):
            yield len(found.group())
        elif sign and sign not in open_signs:
            end = code.find(closing[sign], at)
            if end < 0:
                open_signs.add(sign)
            else:
                at = end + len(closing[sign])
                yield at - found.start()


_STRING = "|".join(
    [
        *(rf"{q * 3}(?:[^{q}\\]++|\\.?|{q}(?!{q * 2}))*+(?:{q * 3}|\Z)" for q in "\"'"),
        *(rf"{q}(?:[^{q}\\\n]++|\\.?)*+{q}?+" for q in "\"'"),
    ]
)
_TEXTS = rf"(?P<comment>#[^\n]*+)|(?P<string>(?:\b[rRuUbBfF]{{1,2}})?(?:{_STRING}))"
_CODE = re.compile(rf"{_TEXTS}|^[ \t\f]*+(?P<kind>class|def)[ \t\f]++(?P<name>\w*)", re.DOTALL | re.MULTILINE)
_HEADER = re.compile(
    rf"{_TEXTS}|(?P<opened>[(\[{{])|(?P<closed>[)\]}}])|(?P<colon>:)|\\\n|(?P<newline>\n)", re.DOTALL
)
_BLANK = re.compile(r"(?:[ \t\f\n]|\\\n)*+")
_STATEMENT_END = re.compile(r"[ \t\f]*+(?:[;#\n]|\Z)")
_LITERAL = re.compile(r"""([rRuU]?)("{3}|'{3}|["'])(.*)\2""", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:(\n)|([nrtfv])|[\\'\"ab]|[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}\n]*\})"
)
_SPACES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}


def python_prose(code: str) -> str:
    """Return the docstrings of classes, functions (without coroutines) and the module, in this order and by name, then the comments without their signs."""
    comments: list[str] = []
    documents: list[tuple[int, str, str]] = []
    at, behind, depth = 0, 0, 0
    place: tuple[int, str] | None = (2, "")  # what strings at `behind` would be the docstring of
    parts: list[str] = []  # of it so far
    in_header = False
    while found := (_HEADER if in_header else _CODE).search(code, at):
        at, kind = found.end(), found.lastgroup
        if kind == "comment":
            comments.append(found.group().replace("#", ""))
            behind = behind if in_header else _behind(code, behind, found)
        elif kind == "string" and not in_header:
            behind, text = _behind(code, behind, found), _text_of(found.group())
            place = None if behind < 0 or text is None else place
            parts.append(text or "")
            if place and _STATEMENT_END.match(code, at):
                documents.append((*place, cleandoc("".join(parts))))
                place = None
        elif kind == "name":
            place, parts = (("class", "def").index(found["kind"]), found["name"]), []
            in_header, depth = True, 0
        elif in_header:
            depth += (kind == "opened") - (kind == "closed")
            if depth <= 0 and kind in ("colon", "newline"):
                in_header, behind = False, at if kind == "colon" else -1
    texts = [text for *_, text in sorted(documents, key=lambda document: document[:2]) if text]
    return ("\n".join(texts) + "\n" + "".join(comments)).strip()


def _behind(code: str, behind: int, found: re.Match[str]) -> int:
    """Return the end of a match if nothing but blanks stands between `behind` and it, else -1."""
    blank = _BLANK.match(code, behind) if behind >= 0 else None
    return found.end() if blank and blank.end() == found.start() else -1


def _text_of(literal: str) -> str | None:
    """Return the text of a string, None if it cannot be in a docstring. What escapes stand for matters only where it is white space."""
    parts = _LITERAL.fullmatch(literal)
    if parts is None:
        return None
    prefix, _, text = parts.groups()
    return str(text) if prefix in ("r", "R") else _ESCAPE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    newline, space = found.groups()
    return "" if newline else _SPACES.get(space, "x")


_UNSEEN = re.compile(
    r"<!--(?:.*?-->|.*)|<(script|style|template|rt|rp)\b[^<>]*+>(?:.*?</\1\b[^<>]*+>|.*)|"
    r"""<[a-zA-Z/!?](?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*+>""",
    re.DOTALL | re.IGNORECASE,
)


def page_share(html: str) -> float:
    """Return the share of the characters of a page that are seen, blanks between two tags being one; 0 if they are 100 or fewer."""
    seen, at = 0, 0
    for found in _UNSEEN.finditer(html):
        seen += _seen(html[at : found.start()])
        at = found.end()
    seen += _seen(html[at:])
    return seen / len(html) if seen > 100 else 0.0


def _seen(text: str) -> int:
    return len(unescape(text)) if text.strip(" \t\n\f\r") else min(len(text), 1)
