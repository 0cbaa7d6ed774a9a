"""The commands' bodies: everything that takes `Settings`."""
