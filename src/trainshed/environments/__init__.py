"""Python environments per framework: recipes, and making them once."""
