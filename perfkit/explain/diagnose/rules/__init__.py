"""Rules: one problem a module, each with one RULE; the engine finds them by themselves."""
