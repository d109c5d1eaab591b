"""What people touch: command line, app, pages, charts, reports and exported files."""
