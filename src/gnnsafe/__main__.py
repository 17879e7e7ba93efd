"""`python -m gnnsafe`: the command line, where the folder of `gnnsafe` is not on the PATH."""

import sys

from gnnsafe.cli import main

if __name__ == "__main__":
    sys.exit(main())
