"""For those who write rules: projects of their own."""
