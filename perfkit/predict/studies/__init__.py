"""Studies: questions that take many estimates of variations on one plan: what matters, what a feature would do, how it grows."""
