"""Small real models for tests, written by hand: training by the package fasttext-numpy2 ends in `Encountered NaN` now and then."""

import struct

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
