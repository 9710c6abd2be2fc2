"""Mutual TLS: links between sites of different organisations, with journals to resume from."""

from eigenmesh.transports.tls.connection import Credentials
from eigenmesh.transports.tls.dialling import HttpProxy, Routes, Via
from eigenmesh.transports.tls.keyring import CertificateKeyring
from eigenmesh.transports.tls.transport import Endpoint, TlsTransport
