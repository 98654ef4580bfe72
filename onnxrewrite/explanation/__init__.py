"""Explanations: why a rule does not apply where it nearly does, and what a node has been through.

The predicates of patterns and rules are replayed by the plain matcher, so that the matcher that is used need not know
of reasons.
"""
