"""The project's Invoke tasks, by theme; `tasks.py` collects them."""
