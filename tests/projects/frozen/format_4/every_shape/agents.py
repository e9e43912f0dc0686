from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe, Event

from typing import Literal, TypedDict
class Item(TypedDict, total=False):
    sku: str
@publishes("/Said", {"a": list[Item], "b": Literal["x", None] | dict[str, float]})
@depends_on("B")
class A(GraphBusNode):
    IS_ARBITER = True
    @schema_method({"x": int}, {"y": tuple[int, str]})
    async def f(self, x: int, *rest, k=1, **more) -> dict:
        self.publish("/Said", {"a": [], **more})
        self.call("B", "g", x=x)
        return {"y": x}
    @subscribe("/Said")
    def on_said(self, event): return event["a"], event.get("b"), self.use(event)
class B(GraphBusNode):
    SUBSCRIBE = ["/**"]
    def handle_event(self, topic, payload): pass
    @subscribe("/Fields")
    def on_fields(self, x: int, y="") : pass
