"""Text for people: tables, charts, units."""
