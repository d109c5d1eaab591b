"""Graph files that the MindSpore compiler saves: operators, communications and their causes, recomputation in effect."""
