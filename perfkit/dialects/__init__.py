"""Configuration dialects: from a config file to a `Plan` and back."""

from perfkit.dialects._dialect import Document, Written
from perfkit.dialects._read import load_document, read_config, read_text
from perfkit.dialects._write import edit_config, write_config

__all__ = ["Document", "Written", "edit_config", "load_document", "read_config", "read_text", "write_config"]
