"""Speed: benchmarks, profiles, and the choice of kernels by measuring them."""
