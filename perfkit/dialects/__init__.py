"""Configuration dialects: from a config file to a `Plan` and back."""

from perfkit.dialects._read import read_config

__all__ = ["read_config"]
