"""Kineto traces of PyTorch."""
