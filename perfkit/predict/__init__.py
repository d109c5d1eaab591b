"""From a plan to numbers before anything runs: cost, memory, schedules, search, simulation."""
