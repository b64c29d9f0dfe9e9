"""Flags for all but one of equal or similar documents and paragraphs. Begin with `verb`.

`job` compares documents by equal values, `fuzzy` by similarity, `paragraphs` compares paragraphs; `bloom` and `index` are what is kept of either for datasets to come.
"""
