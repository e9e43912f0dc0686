"""PrinterService: puts a message on the terminal and says that it did."""

from __future__ import annotations

import os
import sys

from graphbus_core import GraphBusNode, depends_on, schema_method

GREEN = "\x1b[32m"
PLAIN = "\x1b[0m"


@depends_on("HelloService")
class PrinterService(GraphBusNode):
    """Prints messages, in green where the terminal can show it."""

    SYSTEM_PROMPT = """
    I print what HelloService says and announce each printed message on /Message/Printed. I never change the text itself. I care
    about terminals without colours: output that is piped into a file must stay plain.
    """

    @schema_method(input_schema={"message": str}, output_schema={"characters": int})
    def print_message(self, message: str) -> dict[str, int]:
        """Print one line, then tell everybody on the bus about it."""
        print(f"{GREEN}{message}{PLAIN}" if self._has_colours() else message)
        self.publish("/Message/Printed", {"message": message, "characters": len(message)})
        return {"characters": len(message)}

    @staticmethod
    def _has_colours() -> bool:
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
