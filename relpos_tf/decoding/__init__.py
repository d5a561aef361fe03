"""From ids and strings to translations: search, engines, Translator."""
