"""Run programs: devices, memory, the executor, caches on disk. Knows no operators and no compiler."""
