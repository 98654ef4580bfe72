"""The database of measurements: rows that say in the clear what was measured, how, on what, and what came out.

``rows`` is what a row says, ``machine_class`` what machines are taken for alike, ``signing`` and ``exchange`` how rows
travel, ``store`` where they stay, ``known`` what a run of ``apply`` asks.
"""
