"""Measure the first second: small programs as new users write them, each in a fresh process."""
