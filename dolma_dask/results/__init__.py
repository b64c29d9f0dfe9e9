"""Outcomes of verbs and questions: facts and tables of typed cells, and the only places that write them.

`table` has the columns and cells, `parts` what an outcome consists of, `summary` what all verbs return. Whoever has a result says its facts and
tables once; `answer` (terminal and JSON), `notebook` and the pages of `dolma_dask.pages` show them.
"""
