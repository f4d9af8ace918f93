"""`normgeom scan`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from normgeom.cli._inputs import load_input, load_module
from normgeom.cli._options import DTYPES, pick, usable_device
from normgeom.cli.fisher import Mode
from normgeom.report import text_table
from normgeom.symmetry import SymmetryMap
from normgeom.symmetry import scan as run
from normgeom.symmetry.map import HEADER


def scan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="An nn.Module, or a class or function that takes nothing and returns one; FILE.py:NAME too.",
        ),
    ],
    input: Annotated[
        str,
        typer.Option(
            help="The batch: a shape of random numbers such as 8x3x32x32, of whole numbers below 50 such as "
            "4x16<50, an .npy, .npz or .pt file, digits, or MODULE:CALLABLE that returns it."
        ),
    ],
    select: Annotated[str, typer.Option(help="Name or index of the output that counts; default all.")] = "",
    dtype: Annotated[str, typer.Option(help="float64, float32, …; the model's own if not given.")] = "",
    device: Annotated[str, typer.Option(help="Device, such as cpu or cuda.")] = "cpu",
    mode: Annotated[Mode, typer.Option(help="Mode to put the module in.")] = Mode.AS_FOUND,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of every draw.")] = 0,
    words: Annotated[bool, typer.Option("--words", help="Say of every symmetry why it holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
) -> None:
    """Print every scale and shift symmetry of a model, single and joint."""
    if as_json and latex:
        raise ValueError("--json and --latex exclude each other; got both.")
    kind = pick("--dtype", dtype, DTYPES)[0] if dtype else ""
    place = usable_device(device)
    module = load_module(model).to(place, DTYPES.get(kind))
    if mode is not Mode.AS_FOUND:
        module.train(mode is Mode.TRAIN)
    generator = torch.Generator().manual_seed(seed)
    batch = load_input(input, module, generator=generator)
    with _bar() as progress:
        found = run(module, batch, select=_selector(select), generator=generator, progress=progress)
    _print_map(found, as_json, latex)
    if words and not (as_json or latex):
        Console().print("\n".join(found.words()), highlight=False, markup=False, soft_wrap=True)


def _selector(text: str) -> Callable[[Any], Any] | None:
    """What picks an output by its place, its key or its attribute."""
    if not text:
        return None

    def pick_output(out: Any) -> Any:
        try:
            return (
                out[int(text)]
                if text.isdigit()
                else out[text]
                if hasattr(out, "keys")
                else getattr(out, text)
            )
        except (KeyError, IndexError, AttributeError, TypeError):
            has = f"; it has {', '.join(map(str, out))}" if hasattr(out, "keys") else ""
            raise ValueError(f"the model's output, a {type(out).__name__}, has no {text!r}{has}.") from None

    return pick_output


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, else nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("passes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_map(found: SymmetryMap, as_json: bool, latex: bool) -> None:
    """Print a map in the format asked for."""
    if as_json or latex:
        print(found.to_json() if as_json else found.to_latex())
        return
    console = Console()
    console.print(text_table(HEADER, found.cells(folded=True), console.width))
    for line in [*found.joint_lines(), found.summary()]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
