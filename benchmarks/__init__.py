"""Benchmarks of dgl_flash; run them from the root of the checkout: python -m benchmarks.run."""
