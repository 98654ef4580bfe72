"""From an exported model to a deployed one: stages measured, gated, and taken back where they do not pay."""
