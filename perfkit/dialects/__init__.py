"""Configuration dialects: from a config file to a `Plan` and back."""
