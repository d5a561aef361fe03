"""Campaigns whose parts are used in tests; see tools/README.md."""
