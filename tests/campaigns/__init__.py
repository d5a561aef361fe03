"""Long runs with faults, started by hand; each prints a table."""
