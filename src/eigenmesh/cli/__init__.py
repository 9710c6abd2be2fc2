"""The ``eigenmesh`` command: where strings become objects."""

from eigenmesh.cli.app import app, main

__all__ = ["app", "main"]
