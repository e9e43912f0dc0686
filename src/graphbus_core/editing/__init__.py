"""From an agreed change to text and to files: edits, gate, virtual workspace, journal."""
