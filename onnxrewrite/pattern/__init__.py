"""What to look for: terms (pure data) and the matcher that finds them."""
