"""Configuration dialects: from a config file to a `Plan` and back."""

from perfkit.config.dialects._write import edit_config, write_config
from perfkit.config.dialects.dialect import Document, Written
from perfkit.config.dialects.read import load_document, read_config, read_text

__all__ = ["Document", "Written", "edit_config", "load_document", "read_config", "read_text", "write_config"]
