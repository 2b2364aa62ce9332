"""One class per operator, with three rules each: what it is, what an element of it means, its gradient."""
