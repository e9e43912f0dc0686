from graphbus_core import GraphBusNode, subscribe

class Reader(GraphBusNode):
    @subscribe("/Letter/Sent")
    def on_letter(self, event):
        self.log(event["recipient"])
