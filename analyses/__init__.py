"""One script per table or figure: `compute` returns rows, `draw` draws rows, `write` saves what both made."""
