"""The HTML page. Begin with `verb`; `publication` decides whether a page is still right, `subject` is what it shows of one dataset, `compare` of two.

`history` reads from journals how a dataset came to be, `survey` sums up documents and signals in one pass, `content` puts both together as
the records of `model` and adds the tables that other verbs make of their journals, `clusters` texts of near duplicates. `page` renders them: `story` has
the chapters and their sentences, `views` the page's own tables; cells are written by `dolma_dask.results`, bars counted and drawn by `dolma_dask.figures`.
"""
