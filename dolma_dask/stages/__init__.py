"""One file per verb: thin wiring of kernels, readers and writers under the engine."""
