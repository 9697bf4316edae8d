"""What the page says of a probability, worked out once more."""


def certainty(probability: float) -> str:
    """A word of the IPCC's scale and a number."""
    number = "over 99" if probability > 0.99 else f"{100 * probability:.0f}"
    if probability < 0.5:
        return f"uncertain, though the likeliest ({number} %)"
    if probability < 0.66:
        return f"more likely than not ({number} %)"
    return f"likely ({number} %)" if probability < 0.9 else f"very likely ({number} %)"
