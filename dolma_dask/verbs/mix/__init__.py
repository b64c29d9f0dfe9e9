"""Documents and attributes to a new version of the documents, and to token files. Begin with `verb`, then `call`.

`planning` resolves what was requested to a `transform`, which filters, samples and replaces the rows of a shard on their way to the `outputs`;
`packed` is the job that cuts files by size or shuffles; `streams` reads the Dolma toolkit's configuration.
"""
