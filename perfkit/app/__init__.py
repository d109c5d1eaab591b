"""The browser app: server, page template and navigation."""
