ms.set_context(pynative_synchronize=True)
