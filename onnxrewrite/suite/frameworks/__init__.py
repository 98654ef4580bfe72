"""From a framework's module to a checked model; one file a framework, none of which is imported before it is used."""
