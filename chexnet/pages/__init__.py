"""The report of a run: one page that holds all it shows."""
