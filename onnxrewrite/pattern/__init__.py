"""Patterns: terms (pure data) and the matcher that finds them."""
