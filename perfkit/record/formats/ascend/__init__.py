"""Ascend profiles: text, databases, trace views and what cluster analyses make of them."""
