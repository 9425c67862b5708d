"""A job's expressions and specs as the native runtime takes them. Pure."""
