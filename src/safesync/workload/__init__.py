"""Open-loop request arrivals: when requests come, how long they are, and their random streams.

Arrival families and token lengths need numpy and pydantic only; ``generate`` alone loads pandas.
"""
