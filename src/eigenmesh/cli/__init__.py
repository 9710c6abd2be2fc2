"""The ``eigenmesh`` command: turns the strings that were typed into objects of the library."""

from eigenmesh.cli.app import app, main
