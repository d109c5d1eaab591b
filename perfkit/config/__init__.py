"""Words that people write as plans, and back: dialects, checks of files, and what a recording should hold."""
