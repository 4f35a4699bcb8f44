"""Work over a whole store; `verify` proves it."""
