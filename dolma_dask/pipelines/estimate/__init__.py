"""estimate: what a pipeline will cost, from trials of the real verbs on a seeded sample of what it reads.

`sample` draws records of it, `trial` runs the stages on them, `model` says what that means for the whole, `answer` shows it.
"""
