"""what-if: what each rule of some thresholds drops, and what a stricter level would cost, from attribute columns alone. Begin with `question`.

`ladder` holds the bounds of all levels as arrays, `counting` the kernels and their sums, `stage` the work on some shards, `answer` what is
shown, `page` the page with sliders.
"""
