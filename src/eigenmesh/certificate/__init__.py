"""How near components are to the true ones, measured by the nodes themselves."""

from eigenmesh.certificate._certify import Certificate, Certified, certify
from eigenmesh.certificate._complement import NOTHING_BEYOND, Complement

__all__ = ["NOTHING_BEYOND", "Certificate", "Certified", "Complement", "certify"]
