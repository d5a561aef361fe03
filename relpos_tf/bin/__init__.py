"""Commands: flags and messages only; the work is done by the package.

A command is a module with a docstring (the text of `--help`), `FLAGS` (a
`command.Flags`, so that no flag of another module or of
TensorFlow can collide with it), `main()` and `run()`. `command.py` is the
harness that they share.
"""
