"""The name that `scoring.score` still has for an argument that is None."""

Slots = None
