"""Benchmarks: ratios of a subject to a yardstick, measured side by side in one run."""
