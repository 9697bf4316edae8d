"""Every table and figure of the paper by one command, on equal terms, beside the published figures."""
