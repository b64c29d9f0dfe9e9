"""MinHash signatures of texts, and the arithmetic of locality-sensitive hashing: kernels without input or output.

Begin with `schemes`: how the text of a document becomes its signature. `bands` cuts signatures into keys that similar documents share,
`components` joins the documents that share them.
"""
