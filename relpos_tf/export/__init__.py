"""Models for other programs: SavedModel, CTranslate2, LiteRT, Argos."""
