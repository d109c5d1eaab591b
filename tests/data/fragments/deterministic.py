ms.set_context(deterministic='OFF')
