"""What a tensor is below its methods: a handle on a graph value, the storage it shares, when it is computed."""
