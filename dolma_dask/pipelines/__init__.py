"""Calls of verbs from somewhere else than Python: YAML pipelines, files and words of other tools, the command line.

Begin with `pipeline` (the command run) and `pipeline_file`; `io.yaml_files` reads nodes with positions, replaces references and checks types;
`signatures` turns the signature of a verb into a command and into options of a file. Other tools' words and files: `dolma_calls` (its options stand in
`dolma_options`, one row each) and `hdf5_options`.
"""
