"""Bounds on the error of the components, measured by the nodes themselves."""

from eigenmesh.certificate.bounds import ROUNDING, Precision, gaps_from_ritz, multiplicity, ritz_pairs
from eigenmesh.certificate.certificate import Certificate, Certified, own_signs
from eigenmesh.certificate.complement import COLUMNS
from eigenmesh.certificate.given import GivenComponents
from eigenmesh.certificate.krylov import (
    LARGEST_CHANCE,
    NOTHING_BEYOND,
    Basis,
    Complement,
    ComplementSpace,
    KnownComponents,
    Projected,
    asymmetry,
    block_diagonal,
    bordered,
    by_rows,
    complement_space,
    reconciled,
    soft_polar,
)
from eigenmesh.certificate.measured import Common, certify

__all__ = ["Certificate", "Certified", "Common", "Complement", "ComplementSpace", "GivenComponents", "certify"]
