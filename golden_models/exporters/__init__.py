"""Exporters other than PyTorch's: a zoo of networks an exporter, small ones packed beside this file.

Each zoo is a module that is imported by its name alone, for the exporters cannot live in one environment.
"""
