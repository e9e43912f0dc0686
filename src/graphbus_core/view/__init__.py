"""The live view of a graph: what it shows, as JSON, and the page that draws it. Imported only for `--view` and `graphbus view`."""
