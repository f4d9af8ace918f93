"""The Fisher metric of normalized models: families, GLMs, exact forms and what is read off them."""
