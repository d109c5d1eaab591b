"""What several formats read with: text in blocks, JSON events, SQLite, pairs of begin and end, rows kept for later."""
