"""From files to a `Run`, and from a `Run` to frames and breakdowns."""
