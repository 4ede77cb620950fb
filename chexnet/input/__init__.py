"""From stored films to batches: the exact order, mapped bytes, and what fits which data."""
