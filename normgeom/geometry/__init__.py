"""The Fisher metric of normalized models: section 5.2 of the paper, exact."""
