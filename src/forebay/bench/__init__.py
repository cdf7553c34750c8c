"""Measuring Forebay: every figure stands beside a peer or a ceiling that was measured in the same run.

Machines differ and are busy, so an absolute figure says little. Each comparison therefore alternates: ours, theirs,
ours, theirs, for several rounds on the same disk, and the ratio that counts is the median of the rounds' ratios. The
best and the median of both sides are reported beside it.

A suite is a function that yields `Figure`s. `forebay bench SUITE -o json` prints

    {"suite", "machine", "results": [{"name", "value", "best", "unit", "against", "against_value", "against_best",
        "ratio", "goal", "holds", "rounds", "note"}]}

A goal of 0 is none: the figure is there for information. A suite with peers that may be left out adds "without", the
names of those that were.
"""
