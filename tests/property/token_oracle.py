"""The tokens and shingles of the scheme ``dolma_dask`` again, in plain Python: whole texts by `unicodedata` and `regex`, where the kernels go by
code points and tables.
"""

import unicodedata

import regex
from hypothesis import strategies as st

from dolma_dask.text.tables import ASSIGNED, load_tables

MASK = (1 << 64) - 1
UNSPACED = regex.compile(
    r"[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Bopo}\p{scx=Yiii}\p{scx=Tang}\p{scx=Nshu}\p{scx=Kits}\p{scx=Bali}"
    r"\p{scx=Java}\p{Line_Break=SA}]"
)
INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
JAMO = regex.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?")
SYLLABLES = regex.compile("([\uac00-\ud7a3]+)")


def is_assigned(char):
    """Return whether the tables know a character, so that Pythons of any age agree on it."""
    numbers, blocks = load_tables()
    return bool(blocks[int(numbers[ord(char) >> 8]) << 8 | ord(char) & 0xFF] & ASSIGNED)


kinds_of_text = st.sampled_from(
    ["aZ09 ,._'-", "éÉßſΣςσİıŉﬃ", "中文日本語のガか゛ﾞﾊﾟー々。、", "กขคำ้ัเแ", "한국어가각", "\u1112\u1161\u11ab\u1100",
     "\u0301\u0308\u200d\u00ad\ufe0f\u20dd", "\u09cb\u0ccb\u1026\u0344\u0958", "\U0001d400\U00010400\U000e0100😀≠\U0001d15f",
     "ＡＢｆ０１\u3000\u00a0\u2003\n"]
)  # fmt: skip
chars = kinds_of_text.flatmap(st.sampled_from) | st.characters(exclude_categories=["Cs"]).filter(is_assigned)
pieces = st.text(chars, max_size=12) | st.text("aB1é가語", min_size=1, max_size=3).map(lambda text: text * 30)
texts = st.lists(pieces, max_size=8).map("".join)


def visible(text):
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if not unicodedata.combining(char) and not is_invisible(char))


def is_invisible(char):
    return bool(INVISIBLE.match(char)) and unicodedata.category(char) != "Cn"


def of_normal_width(char):
    tag, _, code = unicodedata.decomposition(char).partition(" ")
    return chr(int(code, 16)) if tag in ("<wide>", "<narrow>") else char


def fold(text):
    text = JAMO.sub(lambda found: unicodedata.normalize("NFC", found[0]), "".join(map(of_normal_width, text)))
    return "".join(
        part if SYLLABLES.match(part) else visible(visible(part).casefold()) for part in SYLLABLES.split(text)
    )


def tokens(text, unit="word"):
    found, word, space = [], "", False
    for char in fold(text):
        if unicodedata.category(char)[0] in "LMN":
            if unit == "char":
                found += [" "] * (space and found != []) + [char]
                space = False
            elif UNSPACED.match(char):
                found += [word] * (word != "") + [char]
                word = ""
            else:
                word += char
            continue
        found += [word] * (word != "")
        word, space = "", space or char.isspace()
    return found + [word] * (word != "")


def shingles(text, n, unit="word"):
    found = tokens(text, unit)
    n = min(n, len(found))
    return [tuple(found[at : at + n]) for at in range(len(found) - n + 1)] if found else []


def jaccard(one, other):
    return len(one & other) / len(one | other)


def mix(word):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        word = ((word ^ (word >> 33)) * factor) & MASK
    return word ^ (word >> 33)


def hash_token(token):
    data, state = token.encode(), 0
    for at in range(0, len(data), 8):
        word = int.from_bytes(data[at : at + 8], "little")
        state = ((state ^ (word * 0xC2B2AE3D27D4EB4F & MASK)) * 0x9E3779B185EBCA87) & MASK
        state = ((state << 31) | (state >> 33)) & MASK
    return mix(state)


def hash_shingle(shingle):
    total = 0
    for token in shingle:
        total = (total * 0x9E3779B97F4A7C15 + hash_token(token)) & MASK
    return mix(total)


def signature(text, n, unit, a, b):
    """The minima, as a list; 2**32 - 1 where there are no shingles."""
    hashes = {hash_shingle(shingle) >> 32 for shingle in shingles(text, n, unit)}
    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    return [min(((x * h + y) & 0xFFFFFFFF for h in hashes), default=0xFFFFFFFF) for x, y in pairs]
