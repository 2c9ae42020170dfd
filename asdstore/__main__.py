"""`python -m asdstore VERB`: the same as the console script."""
import sys

from asdstore.cli import main

if __name__ == "__main__":
    sys.exit(main())
