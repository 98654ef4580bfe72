"""Writing rules from models: a region that somebody names, or that recurs and no rule covers, becomes a rule file.

Must not know: what a captured region is to become.  That is for the author to say.
"""
