"""``python -m akeso`` is the ``akeso`` command; torchrun starts it this way."""

from akeso.cli import main

if __name__ == "__main__":
    main()
