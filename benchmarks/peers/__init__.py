"""The loaders that `benchmarks.loaders` compares, one small program each."""
