"""Films: where they lie, how they are divided, stored, inspected and verified."""
