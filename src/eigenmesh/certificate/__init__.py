"""Bounds on the error of the components, measured by the nodes themselves."""

from eigenmesh.certificate._certificate import Certificate, Certified
from eigenmesh.certificate._certify import certify
from eigenmesh.certificate._estimates import Common
from eigenmesh.certificate._look import NOTHING_BEYOND, Complement, Look

__all__ = ["NOTHING_BEYOND", "Certificate", "Certified", "Common", "Complement", "Look", "certify"]
