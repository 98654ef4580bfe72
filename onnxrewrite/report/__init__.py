"""Reports for people and machines: plain data for machines, tables for people.

Nothing here computes anything about a model that the library does not know already, and nothing prints.
"""
