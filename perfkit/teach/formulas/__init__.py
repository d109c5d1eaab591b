"""Exercises: the formulas of the class, one module a block of the lesson with one constant GROUP.

Each function takes what was drawn for a student and gives the inputs as the student sees them, the right answer and the values
of common mistakes. An exercise asks for one quantity that its text defines (operations, bytes of one kind, a bubble) and calls the
formula of that quantity alone; what a whole plan takes or needs, as in the rounds of the game, is asked of `predict.estimate`.
Texts, units and draws stand in data/class/exercises.toml.
"""
