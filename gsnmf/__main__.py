"""`python -m gsnmf`: the command line."""

from .cli import main

raise SystemExit(main())
