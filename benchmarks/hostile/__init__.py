"""Files that mean harm, and whether they do any."""
