"""Rows of a fixed number of tokens in HDF5 files: staged tokens, then files that are cut from them."""
