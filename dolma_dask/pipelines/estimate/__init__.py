"""estimate: what a pipeline will cost, from trials of the real verbs on a sample of what it reads.

`sample` draws records of it, `trial` runs the stages on them and says what that means for the whole, `answer` shows it.
"""
