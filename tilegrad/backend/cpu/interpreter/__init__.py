"""Interpret the element rule of any op over blocks of elements, without compiling anything per program.

`translate.py` turns an expression of the scalar language into a `BlockProgram` (`bytecode.py`): loops, and instructions
that each work on a block of some hundred elements which stays in the first cache. The native code of an instruction is
made once per machine (`opcodes.py`, `blocks.ll`) and kept in the cache of kernels.
"""
