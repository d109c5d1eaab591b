"""Memory trackers and memory timelines."""
