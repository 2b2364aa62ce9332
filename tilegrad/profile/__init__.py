"""What programs did: times, memory, limits. Reads the events that the runtime emits."""
