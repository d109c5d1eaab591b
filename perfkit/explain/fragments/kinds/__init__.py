"""The kinds of fragments, one module each with one `FRAGMENT`."""
