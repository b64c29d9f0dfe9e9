"""what-if: what each rule of some thresholds drops, and what a stricter level would cost, from attribute columns alone. Begin with `question`.

`levels` holds the bounds of all levels as arrays, `kernels` count, `sums` add up and travel, `rows` and `answer` say it, and `page` has sliders; `texts`
estimates bytes and tokens.
"""
