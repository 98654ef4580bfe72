"""The float64 reference of a model, and the tolerances that follow from it."""
