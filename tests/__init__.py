"""Tests: the folders mirror those of the package."""

from absl import flags

# `absltest.main` parses absl's flags, which `create_tempdir` reads; pytest and
# unittest do not.
flags.FLAGS.mark_as_parsed()
