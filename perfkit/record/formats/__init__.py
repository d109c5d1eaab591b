"""Trace formats: one module a format, each with the constant FORMAT."""
