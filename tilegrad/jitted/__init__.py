"""`tg.jit`: functions that become programs: watched once, compiled for each kind of arguments, called."""
