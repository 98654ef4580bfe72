"""Structure of weights that training or compression left: zeros, patterns of them, low rank; and what it brings."""
