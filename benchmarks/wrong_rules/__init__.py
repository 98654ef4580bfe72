"""Rules that are right in the common case and wrong in one, ten of each kind: a module for each."""
