"""Graph ops, one class each, defined by three rules: type, element and gradient."""
