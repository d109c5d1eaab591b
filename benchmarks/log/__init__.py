"""Benchmarks of the experiment log."""
