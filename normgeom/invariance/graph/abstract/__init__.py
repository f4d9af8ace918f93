"""How each tensor of a graph answers to an action, at every size at once."""
