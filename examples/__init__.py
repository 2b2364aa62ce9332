"""Networks that train from the command line: `python -m examples.mnist`, `python -m examples.shakespeare`."""
