"""Layers and recomputation by stage with a proven bound: the problem, its models, and what a configuration makes of it."""
