"""`python -m perfkit` is the command line."""

import sys

from perfkit.cli import main

sys.exit(main())
