"""The HTML page. Begin with `verb`; `record` tells whether a page is still right, `content` is what it shows of one dataset, `compare` of two.

`history` reads from journals how a dataset came to be, `recorded` what they counted, and the tables that other verbs make of them; `survey` sums up documents and
signals in one pass, `clusters` reads texts of near duplicates. `content` puts them together as the records of `model`. `page` renders them: `story` has the
chapters and their sentences, `views` the page's own tables, `outlines` what stands as it is; cells are written by `dolma_dask.results`, plots that react are
drawn by `dolma_dask.figures`.
"""
