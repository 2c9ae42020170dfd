"""The standard of asdstore packs as values and pure functions; `README.md` beside this file is the written text."""
