"""Fuzzing: every reader against bytes that nobody wrote."""
