"""Rules that are right and unusual: a module for each family."""
