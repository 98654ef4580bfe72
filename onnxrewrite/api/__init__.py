"""What Python programs call: the compiler and the explainer, with what is convenient in a script or a notebook."""
