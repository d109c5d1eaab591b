"""What all rooms share: specs and the plan, breakdowns, runs, units, errors, sources, settings, texts."""
