"""Files on object stores."""
