"""Implement tensors below their methods: handles on graph values, shared storage, lazy evaluation."""
