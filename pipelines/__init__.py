"""Pipelines of asdstore: plan, gather, apply, and the bridges to torch, Grain, JAX and Lightning."""
from asdstore.installation import verify_siblings

verify_siblings()
