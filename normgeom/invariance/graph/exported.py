"""A layer's own code as a graph of ATen operators, each with its place in the source."""

import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import traceback
from torch.overrides import TorchFunctionMode

from normgeom.invariance.frames import is_users, line_of, users_line
from normgeom.invariance.graph.decompositions import DECOMPOSITIONS, FUNCTIONS
from normgeom.layers import Layer, ModuleLayer

FAILURES = (RuntimeError, TypeError, ValueError, AssertionError, AttributeError, LookupError, ArithmeticError)
FRAME = re.compile(r'File "([^"]+)", line (\d+)')
LIBRARY = str(Path(torch.__file__).parent)
LINE = "users line"
PACKAGE = str(Path(__file__).parents[2])


class NoGraph(Exception):
    """The layer has no graph that can be judged; the message names the operator and its place."""


@dataclass(eq=False)
class Graph:
    """The graph of a layer at one size.

    Attributes:
        module: the exported graph, in float64.
        inputs: for every placeholder `weight`, `data` or the value that it holds.
        output: the node of the outputs.
        changed: the buffers that a call changes, by the node of their new value.
        declared: the eps that the layer and its parts tell.
        detached: the lines that cut the gradient.
        in_place: the lines that write into a tensor.
        found: what engines have found out about the graph, kept for the next transform.
    """

    module: fx.GraphModule
    inputs: dict[fx.Node, Any]
    output: fx.Node
    changed: dict[fx.Node, str]
    declared: frozenset[float] = frozenset()
    detached: tuple[str, ...] = ()
    in_place: tuple[str, ...] = ()
    found: dict[Any, Any] = field(default_factory=dict)

    @property
    def weight(self) -> fx.Node:
        """The placeholder of the weight."""
        return next(
            node for node, value in self.inputs.items() if isinstance(value, str) and value == "weight"
        )

    @property
    def data(self) -> fx.Node:
        """The placeholder of the data."""
        return next(node for node, value in self.inputs.items() if isinstance(value, str) and value == "data")

    @property
    def needed(self) -> list[fx.Node]:
        """The nodes that the outputs depend on, in order."""
        if "needed" not in self.found:
            self.found["needed"] = ancestors(self.output)
        return self.found["needed"]


class _Traced(nn.Module):
    """A layer as a module of two arguments; its parameters and buffers are its own."""

    def __init__(self, layer: Layer, written_out: bool):
        super().__init__()
        self._written_out = written_out
        self._layer = layer
        if isinstance(layer, ModuleLayer):
            self.module = layer.module

    def forward(self, weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        with _Lines(self._written_out):
            if isinstance(self._layer, ModuleLayer):
                return self._layer.apply(self.module, {}, weight, data)
            return self._layer(weight, data)


class _Lines(TorchFunctionMode):
    """Notes the user's line with every operator, and writes functions out where that is asked."""

    def __init__(self, written_out: bool):
        super().__init__()
        self.functions = FUNCTIONS if written_out else {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with the line that calls it."""
        with _noted(users_line(sys._getframe(1), within=_Traced.__module__)):
            return self.functions.get(func, func)(*args, **(kwargs or {}))


def _noted(line: str) -> Any:
    """Note a line with the operators traced within; torch before 2.9 notes those of `forward` alone."""
    note = getattr(traceback, "annotate", None)
    return note({LINE: line}) if note else contextlib.nullcontext()


LOGS = ("torch.fx.experimental.symbolic_shapes", "torch._subclasses.fake_tensor", "torch.__trace")


@contextlib.contextmanager
def _silently() -> Iterator[None]:
    """Keep torch's warnings, logs and printed graphs away, and the random state as it is."""
    logs = [logging.getLogger(name) for name in LOGS]
    were = [(log.level, log.disabled) for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
        log.disabled = True
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, (level, disabled) in zip(logs, were, strict=True):
            log.setLevel(level)
            log.disabled = disabled


def export(layer: Layer, weight: tuple[int, ...], data: tuple[int, ...]) -> Graph:
    """Return the graph of a layer for a weight and data of these shapes.

    Args:
        layer: any layer; its random state, parameters and buffers are left alone.
        weight: the shape of the weight.
        data: the shape of the data.

    Raises:
        NoGraph: if it cannot be exported, with the reason and the line of code.
    """
    if isinstance(layer, ModuleLayer):
        layer = layer.in_double()
    arguments = tuple(torch.empty(shape, dtype=torch.float64) for shape in (weight, data))
    try:
        with _silently(), traceback.preserve_node_meta():
            program = _program(layer, arguments)
            written = list(program.graph.nodes)
            graph = _read(_decomposed(program))
    except FAILURES as why:
        raise NoGraph(f"{layer.name} cannot be exported: {_said(why)}{_raised_at(why)}") from why
    graph.declared = _declared_eps(layer)
    graph.detached = _places(written, lambda name: name == "aten.detach")
    graph.in_place = _places(written, lambda name: name.endswith("_") and not name.endswith("__"))
    _refuse_changing_buffers(graph)
    return graph


def _program(layer: Layer, arguments: tuple[torch.Tensor, ...]) -> Any:
    """Export, with functions written out where one compares values."""
    try:
        program = torch.export.export(_Traced(layer, False), arguments, strict=False)
    except RuntimeError as why:
        if "aten.equal" not in str(why):
            raise
        program = torch.export.export(_Traced(layer, True), arguments, strict=False)
    return program


def _decomposed(program: Any) -> Any:
    """The program in the operators that the rules know."""
    table = torch.export.default_decompositions()
    table.update(DECOMPOSITIONS)
    return program.run_decompositions(table)


def _places(nodes: list[fx.Node], chosen: Callable[[str], bool]) -> tuple[str, ...]:
    """The lines of the operators whose names are chosen, each once."""
    calls = [node for node in nodes if node.op == "call_function"]
    return tuple(dict.fromkeys(place(node) for node in calls if chosen(operator(node)) and place(node)))


def _read(program: Any) -> Graph:
    """Take what is needed from an exported program."""
    nodes = {node.name: node for node in program.graph.nodes}
    inputs: dict[fx.Node, Any] = {}
    arguments = iter(("weight", "data"))
    held = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        inputs[node] = next(arguments) if spec.kind is InputKind.USER_INPUT else held.get(spec.target)
    outputs = program.graph_signature.output_specs
    names = [s.arg.name for s in outputs if s.kind is OutputKind.USER_OUTPUT]
    out = [nodes[name] for name in names if name in nodes]
    if len(out) != 1 or len(names) != 1:
        raise NoGraph("a layer must return one tensor; its graph returns others")
    changed = {nodes[s.arg.name]: s.target for s in outputs if s.kind is OutputKind.BUFFER_MUTATION}
    return Graph(program.graph_module, inputs, out[0], changed)


def _refuse_changing_buffers(graph: Graph) -> None:
    """Raise NoGraph if the outputs depend on a buffer that a call changes."""
    for node, name in graph.changed.items():
        old = [n for n, value in graph.inputs.items() if n in ancestors(node) and not isinstance(value, str)]
        if node in graph.needed or any(n in graph.needed and n.name.endswith(_flat(name)) for n in old):
            own = name.removeprefix("module.")
            raise NoGraph(
                f"the outputs depend on the buffer {own}, which {describe(node)} changes: fix it first"
            )


def _declared_eps(layer: Layer) -> frozenset[float]:
    """The eps that a layer tells, and those that its parts have as attributes."""
    parts = list(layer.module.modules()) if isinstance(layer, ModuleLayer) else []
    told = [layer.eps, *(getattr(part, "eps", None) for part in parts)]
    numbers = (
        torch.as_tensor(eps, dtype=torch.float64).detach()
        for eps in told
        if isinstance(eps, int | float | torch.Tensor)
    )
    return frozenset(float(number) for number in numbers if number.numel() == 1)


def _flat(name: str) -> str:
    return name.replace(".", "_")


def ancestors(node: fx.Node) -> list[fx.Node]:
    """Return a node and all that it depends on, in the order of the graph."""
    seen, stack = {node}, [node]
    while stack:
        for source in stack.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return [n for n in node.graph.nodes if n in seen]


def operator(node: fx.Node) -> str:
    """Return the operator's name without its overload, such as `aten.mean`."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet) if packet is not None else getattr(node.target, "__name__", str(node.target))


def place(node: fx.Node) -> str:
    """Return the line of the user's code that a node comes from, `file.py:14`, else torch's own."""
    line = node.meta.get("custom", {}).get(LINE)
    return line or _innermost(FRAME.findall(node.meta.get("stack_trace") or ""))


def describe(node: fx.Node) -> str:
    """Return a node's operator and its place: `aten.erf, my_norm.py:14`."""
    return ", ".join(filter(None, [operator(node), place(node)]))


def _innermost(frames: list[tuple[str, str]]) -> str:
    """The innermost frame outside torch and normgeom, else the innermost outside normgeom."""
    known = [f for f in frames if not f[0].startswith((PACKAGE, "<"))]
    own = [f for f in known if not f[0].startswith(LIBRARY)] or known
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def _said(error: BaseException) -> str:
    """The first line of an error, control flow that depends on values in plain words."""
    if "data-dependent" in str(error):
        return "its control flow, or a number it reads, depends on the values of weight or data"
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _raised_at(error: BaseException) -> str:
    """The line of the user's code that an error comes from, in parentheses."""
    line, trace = "", error.__traceback__
    while trace is not None:
        line = line_of(trace.tb_frame, trace.tb_lineno) if is_users(trace.tb_frame) else line
        trace = trace.tb_next
    return f" ({line})" if line else ""
