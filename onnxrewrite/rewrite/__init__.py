"""What to do about a match: rules, the tape they build on, and the driver that applies them."""
