"""Kernels over UTF-8 buffers, and the Unicode tables they use."""
