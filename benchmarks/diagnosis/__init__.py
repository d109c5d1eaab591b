"""Benchmarks of the diagnosis."""
