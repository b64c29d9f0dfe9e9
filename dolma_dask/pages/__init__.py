"""The HTML page. Begin with `verb`; `publication` decides whether a page is still right, `subject` is what it shows of one dataset, `compare` of two.

`history` reads from journals how a dataset came to be, `survey` sums up documents and signals in one pass, `content` puts both together as
the records of `model`, `results` adds tables of other verbs, `clusters` texts of near duplicates. `page` renders them: `story` has the chapters and
their sentences, `views` and `tables` what they show; bars are counted and drawn by `dolma_dask.figures`.
"""
