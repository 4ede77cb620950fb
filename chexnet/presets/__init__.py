"""Training presets, one TOML file each; ``chexnet.config`` reads them."""
