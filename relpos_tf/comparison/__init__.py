"""Comparing hparams sets that are trained and scored in the same way.

`variants` defines the sets. `runs` trains them and `scoring` scores them in
child processes, which `jobs` starts.
`corpus_measures`, `two_way` and `pairwise` compute, `collection` brings all
together, `content` makes report.json, and `report` writes it down.
"""
