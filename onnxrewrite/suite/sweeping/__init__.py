"""A whole zoo of models through one command: found, done several at a time, recorded, told in one table."""
