"""HPCCM recipes: a Stack in, definition text out."""
