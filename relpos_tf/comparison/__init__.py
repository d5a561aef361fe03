"""Comparing hparams sets: trained alike, scored alike, and what chance does.

`variants` says what is compared; `runs` knows the directories; `training` and
`scoring` do the work, in processes of their own; `measures` and `significance`
turn it into figures, `report` and `markdown` into something to read.
"""
