"""The quality of a model whose results need not be equal: data to run it on, closeness to a reference, and a gate."""
