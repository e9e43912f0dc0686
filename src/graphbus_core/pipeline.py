"""Named stages with typed inputs and outputs, of which `build.py` and `runtime.py` are made.

    PIPELINE = Pipeline("BUILD")

    @PIPELINE.stage("DISCOVER_MODULES")
    def discover_modules(config: ResolvedBuild) -> ModuleIndex: ...

The parameter types of a stage are its inputs, and its return type is its only output. Types are identified by their names, so
that a type that is expensive to import is not needed until the stage runs. Before the first stage runs, `check` proves that each
input is provided by exactly one earlier stage or by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    import networkx as nx

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., object])


class PipelineError(Exception):
    """The stages of a pipeline do not fit together. The bug is in the program that defines them."""


class PipelineFinished(Exception):  # noqa: N818 - nothing is wrong
    """Raised by a stage to end the pipeline early because there is nothing left to do.

    Attributes:
        product: The result that the last stage would have returned.
    """

    def __init__(self, product: object) -> None:
        super().__init__(type(product).__name__)
        self.product = product


class Products:
    """The results of the stages so far, by type: `products[AgentGraph]` is the one of that type; KeyError if there is none.

    Args:
        given: The first products, which no stage makes.
    """

    def __init__(self, *given: object) -> None:
        self._products: dict[str, object] = {}
        for value in given:
            self.add(value)

    def __getitem__(self, kind: type[T]) -> T:
        return cast("T", self._products[kind.__name__])

    def get(self, kind: type[T]) -> T | None:
        """Return the product of this type; None if no stage has made it yet."""
        return cast("T | None", self._products.get(kind.__name__))

    def __contains__(self, kind: type) -> bool:
        return kind.__name__ in self._products

    def by_name(self, names: Iterable[str]) -> tuple[object, ...]:
        """Return the products of the types with these names, in this order; KeyError if one is missing."""
        return tuple(self._products[name] for name in names)

    def add(self, value: object) -> None:
        """Add a product; raise PipelineError if there is one of the same type."""
        name = type(value).__name__
        if name in self._products:
            raise PipelineError(f"{name} was made twice")
        self._products[name] = value


class Stage(msgspec.Struct, frozen=True):
    """A named step. Its function gets products of the types named in `takes`, and returns one of the type named in `gives`."""

    name: str
    function: Callable[..., object]
    takes: tuple[str, ...]
    gives: str


class Pipeline:
    """A list of stages in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stages: list[Stage] = []

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._stages)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages in order."""
        return tuple(stage.name for stage in self)

    def stage(self, name: str, *, after: str = "") -> Callable[[Function], Function]:
        """Register the decorated function as a stage, at the end, or directly after the stage named `after`.

        Raises:
            PipelineError: There is a stage of this name already, or no stage named `after`.
        """
        if name in self.names:
            raise PipelineError(f"{self.name} has a stage {name} already")
        if after and after not in self.names:
            raise PipelineError(f"{self.name} has no stage {after}")

        def register(function: Function) -> Function:
            *takes, gives = map(_name_of_type, function.__annotations__.values())  # the return type is the last one
            position = self.names.index(after) + 1 if after else len(self._stages)
            self._stages.insert(position, Stage(name, function, tuple(takes), gives))
            return function

        return register

    def excluding(self, *names: str) -> Pipeline:
        """Return a copy without these stages."""
        copy = Pipeline(self.name)
        copy._stages = [stage for stage in self if stage.name not in names]
        return copy

    def replacing(self, functions: Mapping[str, Callable[..., object]]) -> Pipeline:
        """Return a copy in which some stages have other functions.

        Args:
            functions: Name of a stage -> its new function, whose annotations are the inputs and the output.
        """
        other = Pipeline(self.name)
        for stage in self:
            function = functions.get(stage.name)
            if function is None:
                other._stages.append(stage)
            else:
                other.stage(stage.name)(function)
        return other

    def check(self, *given: type) -> None:
        """Check that each input of each stage is provided by the caller or by one earlier stage, and no output twice.

        Args:
            given: The types that the caller provides.

        Raises:
            PipelineError: An input is missing, or an output is there already; the message names the stage and the type.
        """
        known = {kind.__name__ for kind in given}
        for stage in self:
            for needed in stage.takes:
                if needed not in known:
                    raise PipelineError(f"{stage.name} needs {needed}, which no earlier stage makes")
            if stage.gives in known:
                raise PipelineError(f"{stage.name} makes {stage.gives}, which is there already")
            known.add(stage.gives)

    def run(self, *given: object, on_stage: Callable[[str], None] | None = None) -> Products:
        """Run all stages in order and return their products. If a stage raises `PipelineFinished`, it is the last one.

        Args:
            given: The inputs that no stage provides.
            on_stage: Called with the name of each stage before it runs.

        Raises:
            PipelineError: What `check` raises.
            Exception: What a stage raises, other than `PipelineFinished`.
        """
        products = Products(*given)
        self.check(*(type(value) for value in given))
        self.run_on(products, on_stage)
        return products

    def run_on(self, products: Products, on_stage: Callable[[str], None] | None = None) -> None:
        """Run all stages as `run` does, without a check, and add their products to `products`.

        If a stage fails, the caller still has the products of the stages before it.
        """
        for stage in self:
            if on_stage:
                on_stage(stage.name)
            try:
                products.add(stage.function(*products.by_name(stage.takes)))
            except PipelineFinished as finished:
                products.add(finished.product)
                return

    def as_graph(self) -> nx.DiGraph[Any]:
        """Return the stages as a `networkx.DiGraph` with an edge from each stage to the next."""
        import networkx as nx

        graph: nx.DiGraph[Any] = nx.DiGraph(name=self.name)
        graph.add_nodes_from(self.names)
        graph.add_edges_from(zip(self.names, self.names[1:], strict=False))
        return graph


def _name_of_type(annotation: type | str) -> str:
    """Return the name of an annotated type. In modules with postponed annotations, the annotation is the name itself."""
    return annotation if isinstance(annotation, str) else annotation.__name__
