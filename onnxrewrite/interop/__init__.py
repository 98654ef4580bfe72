"""Rules of other rewriters in our driver, and ours in theirs; one package each, imported when it is asked for."""
