"""The published MinHash signatures again, in plain Python: slow, and as close to their definitions as can be."""

import hashlib
import re
import string
import unicodedata

import numpy as np
from hypothesis import strategies as st
from tagger_oracles import texts as plain_texts

from dolma_dask.text import tables

PRIME = (1 << 61) - 1
HIGHEST = (1 << 32) - 1
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text):
    lowered = text.translate(NO_PUNCTUATION).lower()
    return unicodedata.normalize("NFD", re.sub(r"\s+", " ", lowered.strip()))


def shingles(tokens, ngram, glue=" "):
    """All n-grams; the whole where it has fewer tokens than one."""
    return [glue.join(tokens[at : at + ngram]) for at in range(max(1, len(tokens) - ngram + 1))]


def sha1_number(text):
    return int.from_bytes(hashlib.sha1(text.encode()).digest()[:4], "little")


def redpajama_signature(text, ngram, num_perm, seed):
    """The minima, None for a text of too few words."""
    words = normalise(text).split()
    if len(words) < ngram:
        return None
    draws = np.random.RandomState(seed)
    signature = []
    hashes = {sha1_number(shingle) for shingle in shingles(words, ngram)}
    for _ in range(num_perm):
        a, b = (int(draws.randint(least, PRIME, dtype=np.uint64)) for least in (1, 0))
        signature.append(min(((h * a + b) % 2**64 % PRIME) & HIGHEST for h in hashes))
    return signature


def is_known(text):
    """Return whether this Python's Unicode says of each character what the shipped tables say."""
    if tables.table_versions()[0] == unicodedata.unidata_version:
        return True
    numbers, blocks = tables.load_tables()
    classes = blocks.reshape(-1, 256)[numbers].reshape(-1)
    return all(classes[ord(char)] & tables.ASSIGNED for char in text)


sigmas = st.text(st.sampled_from("ΑΣσς.'- \u0301\u00ad\u02b0aA1\n"), max_size=30)
marks = st.text(
    st.sampled_from("\u0301\u0323\u0345\u0344\u0f71\u0f72\u0f73\u0f74\U0001d165e'. \u3099"), max_size=40
)
forms = st.text(st.sampled_from("İIıßẞÅÅΩΐᾳǅﬁ豈한각ᄒ\u1161\u11a8\u0958\u0dda\U0001d15e;`"), max_size=40)
texts = st.builds("".join, st.lists(plain_texts | sigmas | marks | forms, max_size=3)).filter(is_known)
