"""The live view of a graph: what it shows, as JSON, and the page. Imported only for `--view` and `graphbus view`."""
