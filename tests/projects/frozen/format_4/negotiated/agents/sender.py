from graphbus_core import GraphBusNode

class Sender(GraphBusNode):
    def send(self) -> None:
        self.publish("/Letter/Sent", {"recipient": "Ada", "weight_g": 12})
