export MS_ALLOC_CONF="memory_tracker:True"
