"""Functions of tensors, by what they do."""
