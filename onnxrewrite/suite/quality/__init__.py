"""How good a model's results are that need not be equal: data to run it on, how close it comes, and what is enough."""
