"""Adapters of asdstore: corpora to records, and `python -m adapters.prepare`, the command that packs them."""
from asdstore.installation import verify_siblings

verify_siblings()
