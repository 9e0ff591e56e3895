"""The version of what a measurement measures.

Raise it when a change of this room, of ``outer`` or of the tables it writes alters what is
measured: stored measurements then rerun. A comment or a message does not.
"""

MEASUREMENT_VERSION = 3
