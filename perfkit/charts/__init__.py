"""Charts: from a breakdown or frame to an altair chart. The only package that draws."""
