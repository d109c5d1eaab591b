"""Fragments: pieces of configurations and environments, repaired, placed where they belong, and explained key by key."""
