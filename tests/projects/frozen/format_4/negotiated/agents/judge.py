from graphbus_core import GraphBusNode

class Judge(GraphBusNode):
    IS_ARBITER = True
