"""How many planted messes the limits of `health_v1`, `health_language_v1` and boilerplate find, and how many clean texts they take for junk.

Run ``python benchmarks/bench_health.py [--write FOLDER] [--check]``. It reads the reference corpus (20 MB, 7,421 documents) from the folder named by ``DOLMA_DASK_SHARED``,
else from ``../shared``, and prints the share of documents above each limit: of clean prose, documentation and code, and of each mess, which is
planted in clean prose. ``--write`` makes a dataset of them, with the kind as the source; ``--check`` ends with status 1 if a goal is missed. Boilerplate is what at least ten
of the clean texts and of those with menus have in common. Half a minute.
"""

import base64
import gzip
import os
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dolma_dask as dk
from dolma_dask.pages.junk import BOILERPLATE
from dolma_dask.taggers.health import LIMITS, TAGGERS

ROOT = Path(__file__).resolve().parent.parent
PROSE = ("nltk", "wikitext2", "bible")
ENTITIES = "entities of the corpus"
"""A mess that nobody had to plant: Bible translations in which ``&quot;`` stands for quotes."""
SIGNALS = {**LIMITS, **TAGGERS[1].limits, "boilerplate": BOILERPLATE[0]}
KNOWN = {
    "en",
    "baq",
    "arm",
    "chr",
    "cop",
    "est",
    "gla",
    "glv",
    "guj",
    "lav",
    "oji",
    "syr",
    "ukr",
    "wol",
    "zul",
}
"""Languages of the prose that CLD2 knows; the others are Bible translations that no goal is set for by it."""
FOUND, WRONG = 0.95, 0.01
"""Goals: messes found by the signal made for them, clean prose above its limit."""

SCRIPTS = (
    '<script>window.dataLayer=window.dataLayer||[];function gtag(){dataLayer.push(arguments);}gtag("js",new Date());gtag("config","UA-1234-1");</script>',
    "$(document).ready(function(){\n  $('.menu').on('click', function(e) {\n    e.preventDefault();\n    $(this).toggleClass('open');\n  });\n});",
    "var s = document.createElement('script');\ns.async = true;\ns.src = 'https://cdn.example.com/a.js';\ndocument.head.appendChild(s);",
    "<style>.nav{display:flex;margin:0 auto}.nav a{color:#333;padding:4px 8px}@media (max-width:600px){.nav{display:block}}</style>",
    "body {\n  font-family: Arial;\n  color: #444;\n}\n#footer li {\n  list-style: none;\n  margin-left: 2px;\n}",
    '{"@context":"https://schema.org","@type":"NewsArticle","headline":"News","author":{"@type":"Person","name":"A. Writer"},"datePublished":"2020-01-01"}',
    "CookieConsent.run({ categories: { necessary: { enabled: true, readOnly: true }, analytics: {} }, language: { default: 'en' } });",
    "if (typeof wp !== 'undefined') { wp.init({ el: '#comments', postId: 4711, nonce: 'a8f3' }); } else { console.log('no wp'); }",
)
"""What pages leave behind when their text is extracted carelessly."""

WIKI = "== History ==\n'''{0}''' is a [[town]] in the [[Region of {0}|region]].{{{{citation needed|date=May 2012}}}} {{{{Infobox settlement|name={0}|area=12}}}} [[Category:Towns]]\n"
LATEX = "\\section{{Results}}\nWe find $\\alpha_{{1}} = \\frac{{1}}{{2}}$ for {0} \\cite{{smith2004}}.\n\\begin{{equation}}\n\\int_0^1 x \\, dx\n\\end{{equation}}\n"
MAN = Path("/usr/share/man")
ENGLISH, OTHERS, RARE = "prose, English", "prose, other languages", "prose, rare languages"
LETTERS, MENUS = "abcdefghijklmnopqrstuvwxyz", "menus"


class Document(msgspec.Struct):
    id: str
    text: str
    source: str
    metadata: dict[str, object]


def corpus() -> list[Document]:
    """Return the documents that are no planted copies of others."""
    folder = Path(os.environ.get("DOLMA_DASK_SHARED", ROOT.parent / "shared")) / "corpus"
    truth = pq.read_table(folder / "truth.parquet", columns=["id", "kind"])
    originals = set(truth.filter(pc.equal(truth["kind"], "orig"))["id"].to_pylist())
    decode = msgspec.json.Decoder(Document).decode
    return [
        document
        for path in sorted((folder / "documents").glob("*.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
        if (document := decode(line)).id in originals
    ]


def kind_of(document: Document) -> str:
    language = document.metadata.get("lang")
    if document.source in ("code", "html"):
        return "code"
    if document.source == "bible" and "&quot;" in document.text:
        return ENTITIES
    if document.source in PROSE:
        return ENGLISH if language == "en" else OTHERS if language in KNOWN else RARE
    return "documentation, English" if language == "en" else "documentation, other languages"


# ------------------------------------------------------------------------------------------------ messes


def double_encoded(encoding: str, times: int) -> Callable[[str, random.Random], str | None]:
    def plant(text: str, draw: random.Random) -> str | None:
        if text.isascii():
            return None
        for _ in range(times):
            # bytes that Windows-1252 lacks are those of Latin-1, as browsers read them
            text = "".join(bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in text.encode())
        return text

    return plant


def pasted(
    make: Callable[[random.Random, str], str], least: float = 0.05, most: float = 0.5
) -> Callable[[str, random.Random], str]:
    """Plant pieces between lines until they are a share of the text."""

    def plant(text: str, draw: random.Random) -> str:
        share, lines, size = draw.uniform(least, most), text.split("\n"), 0
        while size < share * (len(text) + size):
            piece = make(draw, text)
            lines.insert(draw.randrange(len(lines) + 1), piece)
            size += len(piece)
        return "\n".join(lines)

    return plant


def words_of(draw: random.Random, text: str) -> str:
    return draw.choice(text.split() or ["it"]).strip("{}[]")


def roff(text: str, draw: random.Random) -> str:
    """Make a manual page of a text: a request before each paragraph, fonts in every other one."""
    lines = ['.TH NAME 1 "2020-01-01"', ".SH DESCRIPTION"]
    for line in filter(None, text.split("\n")):
        first, _, rest = line.partition(" ")
        lines += [
            draw.choice([".PP", ".TP", ".IP \\(bu 2"]),
            f"\\fB{first}\\fR {rest}" if draw.random() < 0.5 else line,
        ]
    return "\n".join(lines)


def binary(text: str, draw: random.Random) -> str:
    """Put the beginning of a compressed file behind half of the text, as bytes that were read as UTF-8."""
    return text[: len(text) // 2] + draw.randbytes(draw.randrange(200, 2000)).decode("utf-8", "replace")


def homoglyphs(text: str, draw: random.Random) -> str | None:
    if not text.isascii():
        return None
    alike = str.maketrans(
        "aeopcxAEOPCX", "\u0430\u0435\u043e\u0440\u0441\u0445\u0410\u0415\u041e\u0420\u0421\u0425"
    )
    return " ".join(word.translate(alike) if draw.random() < 0.1 else word for word in text.split(" "))


def cut(text: str, draw: random.Random) -> str:
    return text[: max(1, len(text) * 2 // 3)].rstrip() + draw.choice(["...", "\u2026", " [...]", " [more]"])


SITES, PARTS = 20, 40


def menus(text: str, draw: random.Random) -> str:
    """Put a text of a site between its menu and its footer, lines that all pages of the site have."""
    share, site, size = draw.uniform(0.05, 0.5), draw.randrange(SITES), 0
    parts: list[str] = []
    while size < share * (len(text) + size):
        parts.append(f"Home | News of site {site} | Section {len(parts) % PARTS} | About us")
        size += len(parts[-1]) + 1
    return "\n".join([*parts[::2], text, *parts[1::2]])


def noise(text: str, draw: random.Random) -> str | None:
    """Put random letters in place of those of a text."""
    return (
        "".join(draw.choice(LETTERS) if char in LETTERS else char for char in text)
        if text.isascii()
        else None
    )


MESSES: dict[str, tuple[str, Callable[[str, random.Random], str | None]]] = {
    "Windows-1252, once": ("mojibake", double_encoded("cp1252", 1)),
    "Windows-1252, twice": ("mojibake", double_encoded("cp1252", 2)),
    "Latin-1, once": ("mojibake", double_encoded("latin-1", 1)),
    "Latin-1, twice": ("mojibake", double_encoded("latin-1", 2)),
    "scripts": ("script", pasted(lambda draw, _: draw.choice(SCRIPTS))),
    "tags": ("html", pasted(lambda draw, text: f'<div class="c"><a href="/x">{words_of(draw, text)}</a>&nbsp;</div>')),
    "roff": ("roff", roff),
    "wiki": ("wiki", pasted(lambda draw, text: WIKI.format(words_of(draw, text)))),
    "LaTeX": ("latex", pasted(lambda draw, text: LATEX.format(words_of(draw, text)))),
    "base64": ("encoded", pasted(lambda draw, _: base64.b64encode(draw.randbytes(57)).decode())),
    "binary": ("replacements", binary),
    "control characters": ("controls", pasted(lambda draw, _: "\x1b[1m\x08", 0.001, 0.01)),
    "homoglyphs": ("mixed_words", homoglyphs),
    "other script": ("foreign_letters", pasted(lambda draw, text: "\u0421\u043a\u0430\u0447\u0430\u0442\u044c \u0431\u0435\u0441\u043f\u043b\u0430\u0442\u043d\u043e \u0441\u0435\u0439\u0447\u0430\u0441", 0.4, 0.5)),
    "repeated lines": ("repeated_lines", lambda text, _: "\n".join([text, *["Home | News | About us | Contact"] * (2 + text.count("\n"))])),
    "cut off": ("cut_off", cut),
    MENUS: ("boilerplate", menus),
    "random letters": ("doubt", noise),
}  # fmt: skip
"""Each mess: the signal that is made for it, and how it is planted in a clean text."""


def of_three(english: list[str], others: list[str]) -> Iterator[str]:
    """Yield texts of equal parts from an English one and two in other languages."""
    draw = random.Random("of three")
    for text in english:
        three = [text, *draw.sample(others, 2)]
        size = min(map(len, three))
        yield "\n".join(one[:size] for one in three)


def manual_pages() -> Iterator[str]:
    for path in sorted(MAN.glob("man[1-8]/*.gz"))[:1000]:
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        if not text.startswith(".so"):
            yield text


def texts_by_kind() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return texts by kind, the clean ones first, and the signal made for each mess."""
    found: dict[str, list[str]] = defaultdict(list)
    for document in corpus():
        found[kind_of(document)].append(document.text)
    clean = [text for kind in sorted(found, reverse=True) if kind.startswith("prose") for text in found[kind]]
    signals = {}
    for name, (signal, plant) in MESSES.items():
        draw = random.Random(name)
        planted = [plant(text, draw) for text in clean]
        found[name], signals[name] = [text for text in planted if text is not None], signal
    found["of three languages"], signals["of three languages"] = (
        list(of_three(found[ENGLISH], found[OTHERS])),
        "doubt",
    )
    signals[ENTITIES] = "html"
    found["manual pages"], signals["manual pages"] = list(manual_pages()), "roff"
    return found, signals


# ------------------------------------------------------------------------------------------------ rates


def measure(texts: list[str]) -> dict[str, list[float]]:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    found: dict[str, list[float]] = {}
    for tagger in TAGGERS:
        found |= tagger(batch).to_pydict()
    return found


def boilerplate(found: dict[str, list[str]]) -> Iterator[tuple[str, list[float]]]:
    """Yield what share of each text at least ten of all texts have in common, by kind."""
    with tempfile.TemporaryDirectory() as place:
        root = f"{place}/v0"
        write(found, Path(root))
        dk.dedupe(root, unit="paragraph", min_copies=10, skip_empty=True, name="boilerplate", progress=False)
        table = dk.read_table(root, ["source"], ["boilerplate"])
        for kind in found:
            yield kind, table.filter(pc.equal(table["source"], kind))["boilerplate__share"].to_pylist()


def above(values: list[float], limit: float) -> float:
    return sum(value > limit for value in values) / max(len(values), 1)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)] if values else 0.0


def write(found: dict[str, list[str]], folder: Path) -> None:
    """Make a dataset of all kinds, one shard each."""
    (folder / "documents").mkdir(parents=True)
    encode = msgspec.json.Encoder().encode
    for number, (kind, texts) in enumerate(found.items()):
        rows = [
            encode({"id": f"{number}-{row}", "text": text, "source": kind}) for row, text in enumerate(texts)
        ]
        (folder / f"documents/{number:02}.jsonl.gz").write_bytes(gzip.compress(b"\n".join([*rows, b""]), 3))


def main() -> int:
    found, made_for = texts_by_kind()
    if "--write" in sys.argv:
        write(found, Path(sys.argv[sys.argv.index("--write") + 1]))
    values = {kind: measure(texts) for kind, texts in found.items()}
    clean = [kind for kind in found if kind not in made_for]
    for kind, shares in boilerplate({kind: found[kind] for kind in (*clean, MENUS)}):
        values[kind]["boilerplate"] = shares
    print("| signal | limit |", *(f"{kind} |" for kind in clean), "messes found |")
    print("|---|---|", *("---|" for _ in clean), "---|")
    missed = []
    for signal, limit in SIGNALS.items():
        rates = {kind: above(values[kind].get(signal, []), limit) for kind in found}
        messes = {kind: rates[kind] for kind in made_for if made_for[kind] == signal}
        goals = [kind for kind in clean if kind.startswith("prose") and (signal, kind) != ("doubt", RARE)]
        missed += [f"{signal} {kind}" for kind in goals if rates[kind] > WRONG]
        missed += [f"{signal} {kind}" for kind, rate in messes.items() if rate < FOUND]
        cells = ", ".join(f"{kind} {rate:.1%}" for kind, rate in messes.items())
        print(f"| {signal} | {limit:g} |", *(f"{rates[kind]:.2%} |" for kind in clean), f"{cells} |")
        if "--quantiles" in sys.argv:
            for kind in (*clean, *messes):
                print("   ", kind, *(f"{share}: {quantile(values[kind][signal], share):.4g}" for share in (0.01, 0.05, 0.5, 0.95, 0.98, 0.99, 0.995)))  # fmt: skip
    print({kind: len(texts) for kind, texts in found.items()})
    print("any:", {kind: f"{sum(any(values[kind][s][row] > limit for s, limit in LIMITS.items()) for row in range(len(found[kind]))) / max(len(found[kind]), 1):.1%}" for kind in found})  # fmt: skip
    print("missed:", *missed or ["nothing"], sep="\n  ")
    return int(bool(missed) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
