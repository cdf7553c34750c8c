"""Forebay: a durable, tiered queue in front of Spark data pipelines.

A forebay is the pool in front of a turbine's intake: it takes the surge, and the machine behind it runs steadily.
Producers push; nothing accepted is lost; Spark runs the pipeline; results reach their destinations even when those
are slow or down.

Each stage of the journey is a package of its own, and its docstring is the essay to read first.
"""

__version__ = "0.1.0"
