"""`python -m normgeom.cli`, which torchrun can start: `torchrun --nproc-per-node 2 -m normgeom.cli train`."""

from normgeom.cli import main

main()
