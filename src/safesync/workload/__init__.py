"""Open-loop request arrivals: when requests come, how long they are, and their random streams.

What a config names (families, token lengths, a trace) needs numpy and pydantic only; ``generate``
and the importers load pandas and pyarrow.
"""
