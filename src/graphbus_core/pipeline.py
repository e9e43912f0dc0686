"""Named stages with typed inputs and outputs; the two doors, `build.py` and `runtime.py`, are made of them.

    PIPELINE = Pipeline("BUILD")

    @PIPELINE.stage("DISCOVER_MODULES")
    def discover_modules(config: ResolvedBuild) -> ModuleIndex: ...

A stage's parameter types are its inputs and its return type is its one output. They are known by their names, so that a stage
whose types are expensive to import costs nothing until it runs. Before the first stage runs, `check` proves that
exactly one earlier stage, or the caller, provides each input.
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
    """The stages of a pipeline do not fit together: a mistake in the program that defines it."""


class PipelineFinished(Exception):  # noqa: N818 - nothing is wrong
    """Raised by a stage to end the pipeline early, because nothing is left to do.

    Attributes:
        product: The result that the last stage would have returned.
    """

    def __init__(self, product: object) -> None:
        super().__init__(type(product).__name__)
        self.product = product


class Products:
    """The results of the stages so far, by their types: `products[AgentGraph]`."""

    def __init__(self, *given: object) -> None:
        self._made: dict[str, object] = {}
        for value in given:
            self.add(value)

    def __getitem__(self, kind: type[T]) -> T:
        return cast("T", self._made[kind.__name__])

    def get(self, kind: type[T]) -> T | None:
        """Return the product of this type, or None if no stage has made it yet."""
        return cast("T | None", self._made.get(kind.__name__))

    def __contains__(self, kind: type) -> bool:
        return kind.__name__ in self._made

    def by_name(self, names: Iterable[str]) -> tuple[object, ...]:
        """Return the products of these types, by their names."""
        return tuple(self._made[name] for name in names)

    def add(self, value: object) -> None:
        """Add a product. A second one of the same type is an error."""
        name = type(value).__name__
        if name in self._made:
            raise PipelineError(f"{name} was made twice")
        self._made[name] = value


class Stage(msgspec.Struct, frozen=True):
    """A named step: `function(*takes) -> gives`, where both are names of types."""

    name: str
    function: Callable[..., object]
    takes: tuple[str, ...]
    gives: str


class Pipeline:
    """A list of stages in order.

    Seed 001 shows it as a graph; `as_graph` gives that view.
    """

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
        """Register the decorated function as a stage, at the end or right `after` another one.

        Raises:
            PipelineError: The name is taken, or `after` is no stage.
        """
        if name in self.names:
            raise PipelineError(f"{self.name} has a stage {name} already")
        if after and after not in self.names:
            raise PipelineError(f"{self.name} has no stage {after}")

        def register(function: Function) -> Function:
            *takes, gives = map(_name_of, function.__annotations__.values())
            position = self.names.index(after) + 1 if after else len(self._stages)
            self._stages.insert(position, Stage(name, function, tuple(takes), gives))
            return function

        return register

    def excluding(self, *names: str) -> Pipeline:
        """Return a copy that leaves these stages out."""
        rest = Pipeline(self.name)
        rest._stages = [stage for stage in self if stage.name not in names]
        return rest

    def replacing(self, functions: Mapping[str, Callable[..., object]]) -> Pipeline:
        """Return a copy in which the stages of these names run other functions, with inputs read from their annotations."""
        other = Pipeline(self.name)
        for stage in self:
            function = functions.get(stage.name)
            if function is None:
                other._stages.append(stage)
            else:
                other.stage(stage.name)(function)
        return other

    def check(self, *given: type) -> None:
        """Check that every input of every stage is given, or made by exactly one earlier stage.

        Raises:
            PipelineError: With the stage and the type.
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
        """Run all stages in order and return their products; a stage that raises `PipelineFinished` is the last one.

        Args:
            given: The inputs that no stage provides.
            on_stage: Called with the name of each stage before it runs.
        """
        products = Products(*given)
        self.check(*(type(value) for value in given))
        self.run_on(products, on_stage)
        return products

    def run_on(self, products: Products, on_stage: Callable[[str], None] | None = None) -> None:
        """Run all stages and add their products to `products`, where the caller finds them if a later stage fails."""
        for stage in self:
            if on_stage:
                on_stage(stage.name)
            try:
                products.add(stage.function(*products.by_name(stage.takes)))
            except PipelineFinished as finished:
                products.add(finished.product)
                return

    def as_graph(self) -> nx.DiGraph[Any]:
        """Return the stages as a `networkx.DiGraph`; its topological order is the order of the stages."""
        import networkx as nx

        graph: nx.DiGraph[Any] = nx.DiGraph(name=self.name)
        graph.add_nodes_from(self.names)
        graph.add_edges_from(zip(self.names, self.names[1:], strict=False))
        return graph


def _name_of(annotation: type | str) -> str:
    """Return the name of an annotated type, which is text already in modules with postponed annotations."""
    return annotation if isinstance(annotation, str) else annotation.__name__
