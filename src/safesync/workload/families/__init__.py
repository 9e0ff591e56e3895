"""Arrival families: one file each, joined here into the union that a config chooses from.

A new family is a subclass of ``base.ArrivalFamily`` in a file of its own and a member of
``Family`` (and of ``diurnal.Inner``, to stand under an envelope); its literal field ``family`` is
the name that a config writes.
"""

from typing import Annotated

from pydantic import Field

from safesync.workload.families.base import ArrivalFamily, Drawn, Intensity, ModulatedPoisson
from safesync.workload.families.diurnal import Diurnal
from safesync.workload.families.gamma import GammaRenewal
from safesync.workload.families.mmpp2 import Mmpp2
from safesync.workload.families.pareto import ParetoOnOff
from safesync.workload.families.periodic import Periodic
from safesync.workload.families.poisson import Poisson

FAMILIES = (Poisson, Periodic, Mmpp2, ParetoOnOff, GammaRenewal, Diurnal)

Family = Annotated[
    Poisson | Periodic | Mmpp2 | ParetoOnOff | GammaRenewal | Diurnal,
    Field(discriminator="family"),
]

__all__ = [
    "FAMILIES",
    "ArrivalFamily",
    "Diurnal",
    "Drawn",
    "Family",
    "GammaRenewal",
    "Intensity",
    "Mmpp2",
    "ModulatedPoisson",
    "ParetoOnOff",
    "Periodic",
    "Poisson",
]
