"""How much of the package's arithmetic its own tests would notice to be wrong."""
