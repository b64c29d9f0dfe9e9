"""Rules over documents: `where` expressions (`where`, `rules`, `values`), filters in JSONPath and jq (`filters`) compiled to rules over columns
where possible, spans to replace (`replacements`, `replacing`), and JSON lines edited in place (`splicing`). Begin with `rules.Rule.mask`.
"""
