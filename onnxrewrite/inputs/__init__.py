"""Inputs for models: sizes of symbolic dimensions, classes of values, samples by name, dtype and use."""
