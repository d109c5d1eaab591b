"""Calculators: from a plan to a breakdown, as pure functions."""
