"""What a regime's arrivals may be: an arrival family, or a real trace."""

from typing import Annotated

from pydantic import Field

from safesync.workload.families import (
    FAMILIES,
    Diurnal,
    GammaRenewal,
    Mmpp2,
    ParetoOnOff,
    Periodic,
    Poisson,
)
from safesync.workload.trace import Trace

SOURCES = (*FAMILIES, Trace)

Source = Annotated[
    Poisson | Periodic | Mmpp2 | ParetoOnOff | GammaRenewal | Diurnal | Trace,
    Field(discriminator="family"),
]
