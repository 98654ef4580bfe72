"""Variants of a model side by side, those of other optimizers among them."""
