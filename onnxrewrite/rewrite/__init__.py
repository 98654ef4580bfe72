"""Rewriting at matches: rules, the tape that they build on, and the driver that applies them."""
