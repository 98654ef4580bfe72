"""The operating system: files, temporary folders, memory, cores, worker processes.  Knows nothing of models."""
