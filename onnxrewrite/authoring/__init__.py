"""For those who write rules: projects of their own, rules captured from models, and what is worth one."""
