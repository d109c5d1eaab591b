ms.set_context(pynative_synchronize=False)
