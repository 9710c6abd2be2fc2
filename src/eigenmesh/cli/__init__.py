"""The ``eigenmesh`` command: where strings become objects."""

from eigenmesh.cli._app import app, main

__all__ = ["app", "main"]
