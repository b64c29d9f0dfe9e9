"""Outcomes of verbs and questions: facts and tables of typed cells, and the only places that write them.

`table` has the columns and cells, `answer` the parts that an outcome consists of, `summary` what all verbs return. Whoever has a result says
its facts and tables once; `terminal`, `notebook`, `plain` (JSON) and the pages of `dolma_dask.pages` follow from them.
"""
