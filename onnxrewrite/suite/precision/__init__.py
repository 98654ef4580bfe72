"""Which number format each node computes in: half precision, what quantizing costs where, and the best mixture."""
