"""Run recorded values at once, node by node, without compiling a program for the whole graph."""
