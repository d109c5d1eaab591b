export MS_ALLOC_CONF="enable_vmm:True"
