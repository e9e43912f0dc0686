"""How the newsroom is started."""


def run(graph):
    return graph.call("Collector", "collect", folder="feeds")
