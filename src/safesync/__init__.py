"""safesync: has a DiLoCo synchronization policy earned its serving-SLO claim?"""

__version__ = "0.1.0"
