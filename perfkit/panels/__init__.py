"""Panels: controls, a pure function, a figure and a sentence. The only package with widgets."""
