"""What the bindings know of the C++ headers."""
