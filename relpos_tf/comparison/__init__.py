"""Comparing hparams sets that are trained and scored in the same way.

`variants` defines the sets and `runs` their directories. `train_runs` trains
them, `score_process` scores them, each in a process of its own, and
`score_cache` keeps the scores. `measures`, `significance` and `pairs` compute,
`collection` brings everything together, and `report` writes it down.
"""
