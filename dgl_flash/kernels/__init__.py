"""Kernel runtime: sources, compilation, launches, memory. Knows no op."""
