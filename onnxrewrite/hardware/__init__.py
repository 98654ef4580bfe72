"""What this machine is, and what follows from it for how models are made and opened."""
