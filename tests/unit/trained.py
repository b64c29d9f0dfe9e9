"""Small real models for tests, written by hand: training by the package fasttext-numpy2 ends in `Encountered NaN` now and then."""

import math
import struct
from collections import Counter
from itertools import pairwise

WORDS = {
    "en": "the of and to in is that for it was on as are with this by be at",
    "de": "der die und das in zu den nicht von sie ist des sich mit dem auf",
}


def write_fast_text(path, labels, quantized=False, kind=3):
    """Write a classifier that tells English from German; `labels` are what it says of them. `kind` 1 has word vectors alone."""
    vectors = {"</s>": (0.0, 0.1)}
    for language, sign in (("en", 1.0), ("de", -1.0)):
        vectors |= {word: (sign, 0.1) for word in WORDS[language].split() if word not in vectors}
    vectors |= {
        f"w{number}": (0.0, number / 300) for number in range(300)
    }  # as many as quantization asks for
    names = [*((word, 0) for word in vectors), *((f"__label__{label}", 1) for label in labels)]
    data = struct.pack("<ii12id", 793712314, 12, 2, 5, 5, 1, 5, 1, 3, kind, 0, 0, 0, 100, 1e-4)
    data += struct.pack("<iiiqq", len(names), len(vectors), len(labels), 1000, -1)
    for name, type in names:
        data += name.encode() + b"\0" + struct.pack("<qb", 5, type)
    for matrix in (list(vectors.values()), [(3.0, 0.0), (-3.0, 0.0)]):
        data += struct.pack("<?qq", False, len(matrix), 2) + b"".join(
            struct.pack("<ff", *row) for row in matrix
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if quantized:
        from fasttext.FastText import _FastText

        model = _FastText(str(path))
        model.quantize()
        model.save_model(str(path))


def write_language_model(path, lines):
    """Write a model of two words by counts plus one; a word that it does not know has 10 to the power of -6."""
    sentences = [["<s>", *line.split(), "</s>"] for line in lines]
    words = sorted({word for sentence in sentences for word in sentence})
    pairs = Counter(pair for sentence in sentences for pair in pairwise(sentence))
    firsts = Counter(word for sentence in sentences for word in sentence[:-1])
    number = sum(firsts.values())
    ones = {word: math.log10((1 + firsts[word]) / (number + len(words))) for word in words}
    twos = {pair: math.log10((1 + count) / (firsts[pair[0]] + len(words))) for pair, count in pairs.items()}
    text = [
        f"\\data\\\nngram 1={len(words) + 1}\nngram 2={len(twos)}\n\n\\1-grams:\n-6\t<unk>",
        *(f"{ones[word]:.6f}\t{word}\t-0.3" for word in words),
        "\n\\2-grams:",
        *(f"{score:.6f}\t{' '.join(pair)}" for pair, score in sorted(twos.items())),
        "\n\\end\\\n",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text))
    return ones, twos
