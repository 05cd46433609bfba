"""How task images come about: definitions, recipes, deterministic archives and their cache."""
