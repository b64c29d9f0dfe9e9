"""estimate: what a pipeline will cost, from trials of the real verbs on a seeded sample of what it reads.

`entries` finds what the pipeline reads from outside, `sample` draws documents of it, `trials` runs the stages on them in a process of its own
(`trial`), `model` says what that means for the whole, `answer` shows it.
"""
