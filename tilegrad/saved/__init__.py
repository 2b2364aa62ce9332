"""Save networks with their graphs, and run them without their Python source."""
