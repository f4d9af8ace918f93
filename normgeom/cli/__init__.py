"""The command line: argument parsing only, one command a file."""

import typer
from rich.console import Console
from rich.markup import escape

from normgeom.cli.check import check
from normgeom.cli.fisher import fisher
from normgeom.cli.scan import scan
from normgeom.cli.table1 import table1
from normgeom.cli.train import train
from normgeom.invariance import EnginesDisagree

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The invariances and the geometry of neural-network normalization.",
)


@app.callback()
def _root() -> None:
    """Options before the command, of which there are none."""


for command in (table1, check, fisher, scan, train):
    app.command()(command)


def main() -> None:
    """Run the command line; a bad argument is one line on standard error and exit code 2.

    Engines that disagree exit with 3: neither an answer nor a wrong argument.
    """
    try:
        app()
    except EnginesDisagree as why:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(why))}", highlight=False, soft_wrap=True)
        raise SystemExit(3) from None
    except (ValueError, TypeError, OSError) as why:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(why))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
