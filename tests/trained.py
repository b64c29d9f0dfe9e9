"""Small real models for tests, trained on the spot: fastText by its own trainer in a tenth of a second, a language model by counting pairs of words, since the package kenlm brings no trainer.

The trainer of fasttext-numpy2 sets a tenth of the vectors for each of its threads, up to ten, and leaves the others as the memory was: with fewer threads most trainings end in
`Encountered NaN`, and with more than one no two models are equal. Vectors to begin with, for all words, and one thread give the same model each time.
"""

import math
import random
import tempfile
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

WORDS = {
    "en": "the of and to in is that for it was on as are with this by be at",
    "de": "der die und das in zu den nicht von sie ist des sich mit dem auf",
}
DIMENSIONS = 4
OTHER_WORDS = 300  # as many as quantization asks for


def write_fast_text(path, labels, quantized=False, has_labels=True):
    """Write a classifier that tells English from German; `labels` are what it says of them. Without labels it has word vectors alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_trained(tuple(labels), quantized, has_labels))


@cache
def _trained(labels, quantized, has_labels):
    import fasttext

    draw = random.Random(0)
    names = sorted({word for listed in WORDS.values() for word in listed.split()})
    names += ["</s>", *(f"w{number}" for number in range(OTHER_WORDS))]
    with tempfile.TemporaryDirectory() as folder:
        texts, vectors, model = (Path(folder) / name for name in ("texts", "vectors", "model.bin"))
        vectors.write_text(
            f"{len(names)} {DIMENSIONS}\n"
            + "".join(
                f"{name} {' '.join(f'{draw.uniform(-0.2, 0.2):.6f}' for _ in range(DIMENSIONS))}\n"
                for name in names
            )
        )
        texts.write_text(
            "".join(
                f"__label__{label} {' '.join(draw.choices(WORDS[language].split(), k=6))}\n"
                for _ in range(200)
                for language, label in zip(WORDS, labels, strict=True)
            )
        )
        train = fasttext.train_supervised if has_labels else fasttext.train_unsupervised
        options = {"lr": 0.5, "epoch": 5, "thread": 1, "minCount": 1, "minn": 0, "maxn": 0, "verbose": 0}
        trained = train(str(texts), dim=DIMENSIONS, pretrainedVectors=str(vectors), **options)
        if quantized:
            trained.quantize()
        trained.save_model(str(model))
        return model.read_bytes()


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


def perplexity_of(lines, ones, twos):
    """Return the perplexity of lines by the logarithms that such a model has."""
    score = tokens = 0
    for line in lines:
        tokens += len(line.split()) + 1
        # the package cuts bytes, which other white space of Unicode is not to it
        words = [word if word in ones else "<unk>" for word in line.split(" ") if word]
        for pair in pairwise(["<s>", *words, "</s>"]):
            # a word that is unknown has no weight for what follows it
            back = 0 if pair[0] == "<unk>" else -0.3
            score += twos[pair] if pair in twos else back + ones.get(pair[1], -6)
    return 10 ** (-score / tokens)
