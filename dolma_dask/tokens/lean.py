"""A tokenizer without the steps that change no ids of most texts: it shares the model with the one that it is made of, so that it costs no memory.

Normal form C leaves a text as it is that is in it already, and ``ByteLevel`` behind the model only moves offsets, of which nobody asks. Together they take a tenth of the library's time.
"""

import re
import unicodedata
from itertools import compress

from msgspec import Struct
from tokenizers import Encoding, Tokenizer, normalizers, processors

_KNOWN = re.compile(
    "[\0-\u0220\u0250-\u02ad\u0300-\u034f\u03a3-\u03ce\u0391-\u03a1\u0400-\u0486\u0488-\u04ce\u04d0-\u04f5\u0531-\u0556\u0561-\u0587\u05d0-\u05ea\u0621-\u063a\u0640-\u0655"
    "\u0660-\u06ed\u0905-\u0939\u0e01-\u0e3a\u0e3f-\u0e5b\u10d0-\u10f8\u1100-\u1159\u1208-\u1246\u13a0-\u13f4\u1e00-\u1e9b\u1ea0-\u1ef9\u1f20-\u1f45\u2000-\u2052\u20a0-\u20b1"
    "\u2100-\u213a\u2153-\u2183\u2190-\u23ce\u2500-\u2613\u2619-\u267d\u2701-\u2767\u2776-\u2794\u3000-\u303f\u3041-\u3096\u3099-\u30ff\u3105-\u312c\u3400-\u4db5\u4e00-\u9fa5"
    "\ufe0f\uac00-\ud7a3\uff01-\uffbe\U0001f300-\U0001f64f\U0001f680-\U0001f6c5]*"
)
"""Characters that no version of Unicode in use here lacks: the normal form of a text of these is the same in all, whichever the library has and whichever Python."""


def is_composed(text: str) -> bool:
    """Tell whether a text is in normal form C for certain."""
    return text.isascii() or bool(_KNOWN.fullmatch(text) and unicodedata.is_normalized("NFC", text))


class Lean(Struct, frozen=True):
    """A tokenizer with fewer steps, and the texts for which it may stand."""

    tokenizer: Tokenizer
    takes_all: bool  # no step that it lacks brings texts into normal form C

    def encode(self, whole: Tokenizer, texts: list[str]) -> list[Encoding]:
        """Encode texts, those for which it may not stand by the whole tokenizer; the ids are those of the latter."""
        fits = [self.takes_all or is_composed(text) for text in texts]
        others = [not one for one in fits]
        found = {
            True: iter(_encode(self.tokenizer, list(compress(texts, fits)))),
            False: iter(_encode(whole, list(compress(texts, others)))),
        }
        return [next(found[one]) for one in fits]


def _encode(tokenizer: Tokenizer, texts: list[str]) -> list[Encoding]:
    encodings: list[Encoding] = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return encodings


def find_lean(tokenizer: Tokenizer) -> Lean | None:
    """Return the lean form of a tokenizer; None if it has no step to leave out, or its added tokens would be others."""
    takes_all = type(tokenizer.normalizer) is not normalizers.NFC
    moves_offsets = type(tokenizer.post_processor) is processors.ByteLevel
    added = tokenizer.get_added_tokens_decoder()
    if takes_all and not moves_offsets:
        return None
    if not (takes_all or all(is_composed(token.content) for token in added.values())):
        return None
    lean = Tokenizer(tokenizer.model)
    lean.pre_tokenizer = tokenizer.pre_tokenizer
    if takes_all:
        lean.normalizer = tokenizer.normalizer
    if not moves_offsets:
        lean.post_processor = tokenizer.post_processor
    for _, token in sorted(added.items()):
        (lean.add_special_tokens if token.special else lean.add_tokens)([token])
    is_same = repr(sorted(lean.get_added_tokens_decoder().items())) == repr(sorted(added.items()))
    return Lean(lean, takes_all) if is_same else None
