"""What a person or a machine is shown: plain data for machines, tables for people.

Nothing here computes anything about a model that the library does not know already, and nothing prints.
"""
