"""Kernels over UTF-8 buffers. Begin with `view.TextView`: a block of texts with its lengths, words and lines, found once for all taggers.

`kernels` compiles, `bits` has the machine operations that all kernels build on, `columns` leads from Arrow to arrays and back, `tables` holds
the Unicode classes. `words` and `ngrams` find and count words and lines; `joined` and `normalization` put tokens one
behind the other, so that an n-gram is a substring; `xxh3` hashes columns of strings; `differences` compares two texts
for people.
"""
