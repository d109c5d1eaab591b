"""Nsight Systems databases."""
