"""HelloService: makes the greeting."""

from __future__ import annotations

from graphbus_core import GraphBusNode, schema_method


class HelloService(GraphBusNode):
    """Turns a name into a greeting."""

    SYSTEM_PROMPT = """
    I make greetings. I keep my output to one field, `message`, because PrinterService prints exactly that field. I agree to
    changes that make the greeting clearer, and to none that give it a second shape.
    """

    @schema_method(input_schema={"name": str}, output_schema={"message": str})
    def generate_message(self, name: str) -> dict[str, str]:
        """Greet `name`; somebody without a name is greeted as the world."""
        return {"message": f"Hello, {name.strip() or 'world'}!"}
