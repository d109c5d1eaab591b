"""Benchmarks of the app as a server."""
