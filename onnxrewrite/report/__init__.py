"""What a person or a machine is shown: tables and JSON."""
