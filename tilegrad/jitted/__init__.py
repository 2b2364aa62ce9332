"""Implement `tg.jit`: functions are traced once per kind of arguments, compiled to programs, and called."""
