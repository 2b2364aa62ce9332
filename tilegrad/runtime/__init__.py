"""What runs programs: devices, memory, the executor, what is kept on disk. Knows no operators and no compiler."""
