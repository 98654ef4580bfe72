"""The Python API: the compiler and the explainer, with conveniences for scripts and notebooks."""
