"""Checks of models and of single rewrites: structure, numbers, interface."""
