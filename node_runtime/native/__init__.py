"""The Cython bindings."""
