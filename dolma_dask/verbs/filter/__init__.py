"""filter: the number of levels of thresholds that each document passes, as an attribute set."""
