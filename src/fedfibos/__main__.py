"""``python -m fedfibos``: the command line."""

import sys

from fedfibos.cli import main

sys.exit(main())
