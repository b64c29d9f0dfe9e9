"""The work of the verb `quantiles`: values of all shards, order statistics by group, thresholds."""
