"""Time of a plan: operators, collectives, layers, the step, and the rates that follow from it."""
