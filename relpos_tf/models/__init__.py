"""The Transformer of hparams, and the folder and checkpoints of a run."""
