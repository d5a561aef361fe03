"""Files, text, signals and the like, which know no model."""
