"""Rules that decide about a document: `where` expressions, JSONPath and jq as rules over columns, replacements, thresholds, samples and lists of ids.

Begin with `where` (parses) and `rules` (evaluates); `filters` are JSONPath and jq, `thresholds` make rules of quantiles. No I/O.
"""
