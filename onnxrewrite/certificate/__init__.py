"""The certificate of a run: its record, how it is written, compared and replayed, and what of it is trusted."""
