"""From files to tensors: the data sets, and what is done to a batch on its way into a model."""
