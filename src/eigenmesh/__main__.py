"""``python -m eigenmesh``: the same as the ``eigenmesh`` command."""

from eigenmesh.cli import main

if __name__ == "__main__":
    main()
