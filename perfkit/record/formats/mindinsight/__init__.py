"""MindSpore Insight folders."""
