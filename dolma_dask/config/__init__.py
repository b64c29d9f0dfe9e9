"""From files and words to calls of verbs: pipelines in YAML, and the configuration files and options of the tools that this one replaces."""
