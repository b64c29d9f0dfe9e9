"""A slow and plain reader of one JSON line (RFC 8259, UTF-8), and wild lines to try readers on: the oracle of the JSON tests.

It shares no code with the package nor with msgspec. Characters are looked at one by one.
"""

import json
from dataclasses import dataclass, field

from hypothesis import strategies as st

SPACE = " \t\r\n"
SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


class RejectedLineError(Exception):
    """The line is not one JSON object in UTF-8."""


@dataclass
class Value:
    """One value: its kind, its text in the line, what it means, and how many levels it nests."""

    kind: str
    raw: str
    meaning: object
    levels: int = 0
    escaped: bool = False
    pairs: list[tuple["Value", "Value"]] = field(default_factory=list)
    items: list["Value"] = field(default_factory=list)

    def last(self, key: str) -> "Value | None":
        """Return the value of a key of an object; of several the last."""
        found = [value for name, value in self.pairs if name.meaning == key]
        return found[-1] if found else None


class Reader:
    """Recursive descent over the characters of one line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self, wanted: str) -> None:
        if not self.text.startswith(wanted, self.at):
            raise RejectedLineError(f"{wanted!r} at {self.at}")
        self.at += len(wanted)

    def space(self) -> None:
        while self.peek() and self.peek() in SPACE:
            self.at += 1

    def value(self) -> Value:
        start = self.at
        head = self.peek()
        if head == '"':
            found = self.string()
        elif head == "{":
            found = self.object()
        elif head == "[":
            found = self.array()
        elif head in ("t", "f", "n"):
            word = {"t": "true", "f": "false", "n": "null"}[head]
            self.take(word)
            found = Value(
                "null" if head == "n" else "boolean", word, {"t": True, "f": False, "n": None}[head]
            )
        else:
            found = self.number()
        found.raw = self.text[start : self.at]
        return found

    def digits(self) -> str:
        start = self.at
        while self.peek() and self.peek() in "0123456789":
            self.at += 1
        if self.at == start:
            raise RejectedLineError("digits")
        return self.text[start : self.at]

    def number(self) -> Value:
        start, whole = self.at, True
        if self.peek() == "-":
            self.at += 1
        digits = self.digits()
        if len(digits) > 1 and digits[0] == "0":
            raise RejectedLineError("leading zero")
        if self.peek() == ".":
            whole = False
            self.at += 1
            self.digits()
        if self.peek() and self.peek() in "eE":
            whole = False
            self.at += 1
            if self.peek() and self.peek() in "+-":
                self.at += 1
            self.digits()
        text = self.text[start : self.at]
        return Value("number", text, int(text) if whole and len(text) < 4000 else float(text))

    def unit(self) -> int:
        digits = self.text[self.at : self.at + 4]
        if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise RejectedLineError("\\u")
        self.at += 4
        return int(digits, 16)

    def string(self) -> Value:
        self.take('"')
        out, escaped = [], False
        while True:
            char = self.peek()
            if char == "" or ord(char) < 0x20:
                raise RejectedLineError("in a string")
            self.at += 1
            if char == '"':
                return Value("string", "", "".join(out), escaped=escaped)
            if char != "\\":
                out.append(char)
                continue
            escaped = True
            char = self.peek()
            self.at += 1
            if char in SHORT and char:
                out.append(SHORT[char])
            elif char == "u":
                out.append(self.escaped_character())
            else:
                raise RejectedLineError("escape")

    def escaped_character(self) -> str:
        unit = self.unit()
        if 0xDC00 <= unit <= 0xDFFF:
            raise RejectedLineError("low surrogate")
        if 0xD800 <= unit <= 0xDBFF:
            self.take("\\u")
            low = self.unit()
            if not 0xDC00 <= low <= 0xDFFF:
                raise RejectedLineError("no pair")
            unit = 0x10000 + (unit - 0xD800) * 0x400 + low - 0xDC00
        return chr(unit)

    def array(self) -> Value:
        self.take("[")
        found = Value("array", "", [], 1)
        self.space()
        if self.peek() == "]":
            self.at += 1
            return found
        while True:
            self.space()
            found.items.append(self.value())
            found.levels = max(found.levels, found.items[-1].levels + 1)
            self.space()
            if self.peek() == "]":
                self.at += 1
                found.meaning = [item.meaning for item in found.items]
                return found
            self.take(",")

    def object(self) -> Value:
        self.take("{")
        found = Value("object", "", {}, 1)
        self.space()
        if self.peek() == "}":
            self.at += 1
            return found
        while True:
            self.space()
            key = self.string()
            self.space()
            self.take(":")
            self.space()
            found.pairs.append((key, self.value()))
            found.levels = max(found.levels, found.pairs[-1][1].levels + 1)
            self.space()
            if self.peek() == "}":
                self.at += 1
                found.meaning = {key.meaning: value.meaning for key, value in found.pairs}
                return found
            self.take(",")


def read_line(line: bytes) -> Value:
    """Return the object on one line.

    Raises
    ------
    RejectedLineError
        The line is anything but one JSON object in UTF-8.
    """
    try:
        reader = Reader(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RejectedLineError("utf-8") from error
    reader.space()
    found = reader.value()
    reader.space()
    if reader.at != len(reader.text) or found.kind != "object":
        raise RejectedLineError("not one object")
    return found


spaces = st.sampled_from(["", "", "", " ", "\t", " \r", "   "])
plain_texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.sampled_from('a"\\/\n\t\0\x1f\x7fé漢😀\u2028\ud7ff'), max_size=20),
    st.integers(0, 200).map(lambda n: "x" * n),
    st.tuples(st.integers(50, 140), st.sampled_from('"\\\né😀')).map(lambda pair: "y" * pair[0] + pair[1]),
)


def identity_of(value: Value) -> str | None:
    """Return the id that a string or a whole number is; None for another value."""
    if value.kind == "string":
        return str(value.meaning)
    if value.kind == "number" and set(value.raw) <= set("-0123456789"):
        return "0" if value.raw == "-0" else value.raw
    return None


@st.composite
def strings(draw: st.DrawFn, texts: st.SearchStrategy[str] = plain_texts) -> str:
    """Write a string as JSON, each character in one of the ways that JSON allows."""
    text = draw(texts)
    style = draw(st.sampled_from(["short", "ascii", "mixed"]))
    if style != "mixed":
        return json.dumps(text, ensure_ascii=style == "ascii")
    spellings = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    return '"' + "".join(_spelling(char, spellings[i % len(spellings)]) for i, char in enumerate(text)) + '"'


def _spelling(char: str, how: int) -> str:
    plain = json.dumps(char, ensure_ascii=False)[1:-1]
    if how == 1:
        return {"/": "\\/"}.get(char, plain)
    if how == 2:
        units = char.encode("utf-16-be").hex()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
    if how == 3:
        units = char.encode("utf-16-be").hex().upper()
        return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
    return plain


numbers = st.one_of(
    st.integers().map(str),
    st.integers(-(10**25), 10**25).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(0, 1).map(lambda x: repr(round(x, 5))),
    st.from_regex(r"-?(0|[1-9][0-9]{0,22})(\.[0-9]{1,22})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
)
literals = st.sampled_from(["null", "true", "false"])
scalars = st.one_of(strings(), numbers, literals)


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[str]) -> str:
    """Write an array with space here and there."""
    gap = draw(spaces)
    return "[" + gap + (gap + "," + gap).join(draw(st.lists(items, max_size=4))) + gap + "]"


@st.composite
def objects(
    draw: st.DrawFn, keys: st.SearchStrategy[str], values: st.SearchStrategy[str], max_size: int = 6
) -> str:
    """Write an object with space here and there."""
    gap = draw(spaces)
    pairs = draw(st.lists(st.tuples(keys, values), max_size=max_size))
    return "{" + gap + (gap + "," + gap).join(f"{key}{gap}:{gap}{value}" for key, value in pairs) + gap + "}"


def nested(levels: int, opening: str, closing: str, inside: str) -> str:
    """Write `inside` in `levels` arrays or objects."""
    return opening * levels + inside + closing * levels


values = st.recursive(
    scalars, lambda inner: st.one_of(arrays(inner), objects(strings(), inner, 3)), max_leaves=6
)
deep_values = st.builds(nested, st.integers(58, 70), st.just("["), st.just("]"), st.sampled_from(["", "1"]))
deep_objects = st.builds(
    nested, st.integers(58, 70), st.just('{"k":'), st.just("}"), st.sampled_from(["{}", "1"])
)

broken = st.sampled_from(
    [
        *("NaN", "Infinity", "-Infinity", "01", "-01", "-", "1.", ".5", "1e", "1e+", "+1", "0x1"),
        *(
            "tru",
            "nul",
            "True",
            "'a'",
            '"',
            '"\\"',
            '"\\x"',
            '"\\u12g4"',
            '"a\tb"',
            '"\x00"',
            '"\x1f"',
            '"a""b"',
        ),
        *(
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\ud800\\u0041"',
            '"\\ud800\\ud800\\udc00"',
            '"\\ud83d',
            "\x0b",
            "/**/1",
        ),
        *(
            "[1,]",
            "[,]",
            "[1 2]",
            '{"a"}',
            '{"a":}',
            '{"a":1,}',
            "{a:1}",
            '{"a" 1}',
            "[}",
            "{]",
            "]",
            "}",
            "1 2",
        ),
    ]
)


@st.composite
def damaged(draw: st.DrawFn, lines: st.SearchStrategy[bytes]) -> bytes:
    """Change a few bytes of a line."""
    line = bytearray(draw(lines))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(line)))
        change = draw(st.sampled_from(["drop", "put", "swap", "cut", "double"]))
        byte = draw(
            st.one_of(
                st.sampled_from(b'"\\{}[],:0- \r\t\0\x7f\x80\xbf\xc0\xed\xa0\xf4\xffne1.'),
                st.integers(0, 255),
            )
        )
        if change == "drop":
            del line[at : at + 1]
        elif change == "put":
            line[at:at] = bytes([byte])
        elif change == "swap":
            line[at : at + 1] = bytes([byte])
        elif change == "cut":
            del line[at:]
        else:
            line[at:at] = line[:at]
    return bytes(line).replace(b"\n", b" ")
