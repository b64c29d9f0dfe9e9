"""Health of texts, by regular expressions."""

import itertools
import re
import unicodedata
from collections import Counter

from dolma_dask.text.markup import TAGS
from oracles.language import cld2_plain

MARKUP = re.compile(
    rf"(?P<html><(?:![-Dd]|/?(?i:{'|'.join(sorted(TAGS, reverse=True))})(?=[ \t-\r/>]))[^<>]*>|&(?:[A-Za-z]{{2,8}}|#[0-9]{{2,7}}|#[xX][0-9A-Fa-f]{{2,7}});)"
    r"|(?P<latex>\\(?!f[A-Z])[A-Za-z]{2,}(?:\*?[{\[][^{}\[\]\\\n]*[}\]]?)?)"
    r"|(?P<wiki>\[\[(?=[A-Za-z:/#\x80-\U0010ffff])[^\[\]\n]+\]\]|\{\{(?=[A-Za-z:/#\x80-\U0010ffff])[^{}]+\}\}|^(?P<level>={2,6})[^=\n]+(?P=level)[ \t\r]*$)",
    re.M | re.A,
)
ROFF = re.compile(
    r"\.[A-Za-z]{1,2}(?:[ \t\r]|\Z)|[.']\\\"|.*\\(?:f[BIRPC(\[]|\*[(\[]|\((?:[adlroc]q|bu|e[mn]|co))", re.S
)
BYTES = {
    **{chr(byte): byte for byte in range(0x80, 0x100)},
    **{char: byte for byte in range(0x80, 0xA0) for char in bytes([byte]).decode("cp1252", "ignore")},
}
FOLLOWING = "[" + "".join(char for char, byte in BYTES.items() if 0x80 <= byte < 0xC0) + "]"
SEQUENCE = re.compile(f"[\xc2-\xdf]{FOLLOWING}|[\xe0-\xef]{FOLLOWING}{{2}}|[\xf0-\xf4]{FOLLOWING}{{3}}")
QUIET = set(
    "\u2026\u2039\u2018\u2019\u201c\u201d\u2013\u2014\u203a\xa0\xab\xbb\x85\x8b\x91\x92\x93\x94\x96\x97\x9b"
)
RUN = re.compile(r"[A-Za-z0-9+/=]{40,}")
ENDS = set(".!?\u2026\u3002\u0964\u061f\u06d4\uff01\uff1f\uff0e")


RARE = set("\xc7\xc8\xc9\xca\xcb\xcd\xd2\xd3\xd4\xd5\xd6\xdc\xdd\xde\xdf")


def mojibake(text):
    """Characters in sequences that decode as one character, found from the left."""
    found, place = [], 0
    while match := SEQUENCE.search(text, place):
        place = match.end()
        piece = match[0]
        try:
            bytes(BYTES[char] for char in piece).decode()
        except UnicodeDecodeError:
            place = match.start() + 1
            continue
        weak = piece[0] in RARE or (piece[0] not in "\xc2\xc3" and QUIET.issuperset(piece[1:]))
        found.append((match.start(), match.end(), weak))
    begins, ends = {begin for begin, _, _ in found}, {end for _, end, _ in found}
    return sum(end - begin for begin, end, weak in found if not weak or end in begins or begin in ends)


def is_code(line):
    has = Counter(line)
    marks = has["="] + has["("] + has[")"]
    if (has["{"] or has["}"]) and marks + has[";"] + has[":"]:
        return True
    shown = line.rstrip(" \t\r")
    if shown.endswith(";") and (has["="] or shown.endswith(");")):
        return True
    if '":' in line and has['"'] > 1:
        return True
    return bool(re.search("[{};]", line)) and not shown.strip("{};()[], \t")


def cut_off(text):
    text = text.rstrip()
    if text.endswith(("...", "\u2026", "[...]", "[\u2026]")) or (
        text[-6:].lower() == "[more]" and text[-6:].isascii()
    ):
        return 1.0
    shown = text.rstrip("\"')]*_`\xbb\u2019\u201d\uff09\u300d\u300f")
    return 0.0 if not text or (shown and shown[-1] in ENDS) else 0.5


def health(text):
    n = max(len(text), 1)
    markup = Counter()
    for found in MARKUP.finditer(text):
        kind = "wiki" if found.lastgroup == "level" else found.lastgroup
        markup[kind] += len(found[0])
    lines = [line for line in text.split("\n") if line.strip()]
    copies = Counter(lines)
    words = text.split()
    scripts, mixed = letters(words)
    counted = Counter({name: count for name, count in scripts.items() if name})
    every = sum(counted.values())
    alphabetic = sum(any(char.isalpha() for char in word) for word in words)
    return {
        "mojibake": mojibake(text) / n,
        "replacements": text.count("\ufffd") / n,
        "controls": sum(unicodedata.category(char) == "Cc" and char not in "\t\n\f\r" for char in text) / n,
        "html": markup["html"] / n,
        "script": sum(len(line) for line in lines if is_code(line)) / n,
        "roff": sum(bool(ROFF.match(line)) for line in lines) / max(len(lines), 1),
        "wiki": markup["wiki"] / n,
        "latex": markup["latex"] / n,
        "foreign_letters": (every - max(counted.values(), default=0)) / max(every, 1),
        "mixed_words": mixed / max(alphabetic, 1),
        "repeated_lines": sum(count for count in copies.values() if count > 1) / max(len(lines), 1),
        "cut_off": cut_off(text),
        "encoded": sum(len(run) for run in RUN.findall(text) if any("0" <= char <= "9" for char in run)) / n,
        "longest_word": float(max(map(len, words), default=0)),
    }


def letters(words):
    """Letters by script, and words in which scripts that look alike meet."""
    counts, mixed = Counter(), 0
    alike = {"Latin", "Greek", "Cyrillic"}
    for word in words:
        found = [script(char) if char.isalpha() else "" for char in word]
        counts.update(found)
        mixed += any(
            one in alike and other in alike and one != other for one, other in itertools.pairwise(found)
        )
    return counts, mixed


BLOCKS = sorted(
    (int(first, 16), int(last, 16), name)
    for name, ranges in (
        ("Latin", "0-2AF 1E00-1EFF 2C60-2C7F A720-A7FF AB30-AB6F FB00-FB0F FF00-FF5F"),
        ("", "2B0-36F 1D00-1DFF 2000-2BFF"),
        ("Greek", "370-3FF 1F00-1FFF"),
        ("Cyrillic", "400-52F 1C80-1C8F 2DE0-2DFF A640-A69F"),
        ("Armenian", "530-58F FB10-FB1F"),
        ("Hebrew", "590-5FF FB20-FB4F"),
        ("Arabic", "600-6FF 750-77F 860-8FF FB50-FDFF FE70-FEFF"),
        ("Syriac", "700-74F"), ("Thaana", "780-7BF"), ("Nko", "7C0-7FF"), ("Devanagari", "900-97F A8E0-A8FF"),
        ("Bengali", "980-9FF"), ("Gurmukhi", "A00-A7F"), ("Gujarati", "A80-AFF"), ("Oriya", "B00-B7F"), ("Tamil", "B80-BFF"),
        ("Telugu", "C00-C7F"), ("Kannada", "C80-CFF"), ("Malayalam", "D00-D7F"), ("Sinhala", "D80-DFF"), ("Thai", "E00-E7F"),
        ("Lao", "E80-EFF"), ("Tibetan", "F00-FFF"), ("Myanmar", "1000-109F A9E0-A9FF AA60-AA7F"), ("Georgian", "10A0-10FF 1C90-1CBF 2D00-2D2F"),
        ("Ethiopic", "1200-139F 2D80-2DDF AB00-AB2F"), ("Cherokee", "13A0-13FF AB70-ABBF"), ("Canadian", "1400-167F 18B0-18FF"),
        ("Khmer", "1780-17FF 19E0-19FF"), ("Mongolian", "1800-18AF"), ("Coptic", "2C80-2CFF"), ("Tifinagh", "2D30-2D7F"), ("Yi", "A000-A4CF"),
        ("East Asian", "1100-11FF 2E80-9FFF A960-A97F AC00-D7FF F900-FAFF FF60-FFDF 20000-3FFFF"),
    )
    for first, last in (block.split("-") for block in ranges.split())
)  # fmt: skip


def script(char):
    return next((name for first, last, name in BLOCKS if first <= ord(char) <= last), "other")


def language(text):
    name, sure = (cld2_plain(text) or [(None, 0)])[0]
    return {"language": name, "doubt": 1.0 - sure}


ORACLES = {"health_v1": health, "health_language_v1": language}
