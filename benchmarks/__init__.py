"""Speed and memory, against the peers and against ourselves at other sizes; see README.md."""
