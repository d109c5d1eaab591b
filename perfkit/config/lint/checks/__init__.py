"""Checks: one problem a module, each with its `CHECK`."""
