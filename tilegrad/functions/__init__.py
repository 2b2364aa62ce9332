"""Define the functions of tensors, grouped by kind; `registry.py` lists those with more forms than one."""
