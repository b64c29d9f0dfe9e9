"""Quantiles of attributes, and the thresholds that are made of them."""
