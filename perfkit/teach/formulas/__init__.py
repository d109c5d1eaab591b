"""Exercises: the formulas of the class, one module a block of the lesson with one constant GROUP.

Each function takes what was drawn for a student and gives the inputs as the student sees them, the right answer and the values
of common mistakes. Answers come from perfkit's own calculators; texts, units and draws stand in data/class/exercises.toml.
"""
