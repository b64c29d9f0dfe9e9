"""Verbs: each writes, resumes and has a journal. A folder per verb, or a file.

``verb.py`` holds the function that people call; ``job.py`` the passes of a verb whose result depends on all shards. What several verbs share lies here:
`options` (arguments that all of them take), `selection` (a `where` rule and what it reads), `sinks` (one stage that reads a shard into any number of
files), `flagging` with `flag_rows` (verbs that flag documents). Register a verb in `dolma_dask.registry`.
"""
