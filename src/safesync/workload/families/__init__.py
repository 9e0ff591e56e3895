"""Arrival families: one file each, joined here into the union that a config chooses from.

A new family is a subclass of ``base.ArrivalFamily`` in a file of its own and a member of
``Family``; its literal field ``family`` is the name that a config writes.
"""

from typing import Annotated

from pydantic import Field

from safesync.workload.families.base import ArrivalFamily, Intensity
from safesync.workload.families.mmpp2 import Mmpp2
from safesync.workload.families.periodic import Periodic

Family = Annotated[Periodic | Mmpp2, Field(discriminator="family")]

__all__ = ["ArrivalFamily", "Family", "Intensity", "Mmpp2", "Periodic"]
