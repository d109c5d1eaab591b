"""`python -m perfkit` is the command line."""

import sys

from perfkit.face.cli import main

sys.exit(main())
