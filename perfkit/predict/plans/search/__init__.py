"""Strategy search: the space of parallel strategies, their scores, and the front of the best."""
