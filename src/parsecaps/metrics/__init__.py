"""How good a model is: arrays in, numbers out, each with its interval over patients."""
