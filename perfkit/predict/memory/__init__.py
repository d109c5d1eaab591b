"""Memory of a plan: tensors of one layer, what is in flight, static state, the peak of every stage."""
