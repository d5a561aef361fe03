"""How positions take part in attention: one scheme a module."""
