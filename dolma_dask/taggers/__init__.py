"""Taggers: rules that read columns of a batch and return one column per attribute. Begin with the protocol in `base`.

`registry` finds taggers by name, those of plug-ins too; `functions` makes one of a plain function, with `digest` as its version. The published
rule sets have a module each: `gopher`, `char_length`, `whitespace_tokenizer`.
"""
