"""Events: the causal graph of a recording, from which every question about it is answered."""
