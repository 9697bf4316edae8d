"""The heads: linear in the top capsules before the squash, so that every share is exact."""

import math

import pytest
import torch
from torch import nn

from parsecaps.functional import squash
from parsecaps.nn import Bottleneck, ConceptLayer, Decoder, FullyCaps, PhraseEmbedding
from parsecaps.nn.heads import CapsuleReadout, length
from tests.messages import refused

TOP = {"in_capsules": 9, "in_dim": 5}


class TestCapsuleReadout:
    def test_shares_and_bias_add_up_to_the_capsule_before_the_squash(self) -> None:
        readout = CapsuleReadout(**TOP, out_capsules=4, out_dim=3)
        u = torch.randn(2, 9, 5)
        shares = readout.shares(u)
        assert shares.shape == (2, 4, 9, 3)
        torch.testing.assert_close(squash(shares.sum(2) + readout.bias), readout(u))

    def test_the_share_of_a_capsule_is_its_own(self) -> None:
        readout = CapsuleReadout(**TOP, out_capsules=4, out_dim=3)
        u = torch.randn(1, 9, 5)
        without = u.clone()
        without[0, 6] = 0
        shares = readout.shares(u)
        assert (readout.shares(without)[:, :, 6] == 0).all()
        rest = torch.arange(9) != 6
        torch.testing.assert_close(readout.shares(without)[:, :, rest], shares[:, :, rest])

    def test_gradcheck(self) -> None:
        readout = CapsuleReadout(**TOP, out_capsules=2, out_dim=3).double()
        u = torch.randn(2, 9, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(readout, u, fast_mode=True)


class TestFullyCaps:
    @pytest.mark.parametrize("scale", [10.0, 10])
    def test_a_logit_is_a_scaled_length(self, scale: float) -> None:
        head = FullyCaps(**TOP, num_classes=4, class_dim=6, scale=scale)
        logits, capsules = head(torch.randn(2, 9, 5))
        assert logits.shape == (2, 4)
        assert capsules.shape == (2, 4, 6)
        torch.testing.assert_close(logits, scale * capsules.norm(dim=-1))
        assert logits.max() < scale

    def test_classes_start_apart(self) -> None:
        """Equal capsules for all classes would get equal gradients."""
        _, capsules = FullyCaps(**TOP, num_classes=3, class_dim=6, scale=10.0)(torch.randn(1, 9, 5))
        assert torch.pdist(capsules[0]).min() > 0.01


class TestConceptLayer:
    def test_parts(self) -> None:
        layer = ConceptLayer(**TOP, num_concepts=4, concept_dim=6)
        capsules, presence, global_capsule = layer(3 * torch.randn(2, 9, 5))
        assert capsules.shape == (2, 4, 6)
        torch.testing.assert_close(presence, capsules.norm(dim=-1))
        assert global_capsule.shape == (2, 1, 4)
        torch.testing.assert_close(global_capsule.sum(-1), torch.ones(2, 1))

    def test_all_concepts_can_be_present_at_once(self) -> None:
        layer = ConceptLayer(**TOP, num_concepts=4, concept_dim=6)
        with torch.no_grad():
            layer.readout.bias.mul_(10)
        _, presence, _ = layer(torch.zeros(1, 9, 5))
        assert presence.min() > 0.9


class TestBottleneck:
    def test_contributions_and_bias_add_up(self) -> None:
        head = Bottleneck(num_concepts=5, num_classes=3)
        with torch.no_grad():
            head.bias.normal_()
        presence = torch.rand(2, 5)
        logits, contributions = head(presence)
        assert contributions.shape == (2, 3, 5)
        torch.testing.assert_close(contributions.sum(-1) + head.bias, logits)
        torch.testing.assert_close(logits, presence @ head.weight.T + head.bias)

    def test_a_corrected_concept_changes_the_logits_by_its_contribution(self) -> None:
        head = Bottleneck(num_concepts=5, num_classes=3)
        presence = torch.rand(1, 5)
        corrected = presence.clone()
        corrected[0, 2] = 0
        before, contributions = head(presence)
        after, _ = head(corrected)
        torch.testing.assert_close(before - after, contributions[..., 2])


def test_length_has_a_finite_gradient_at_zero() -> None:
    capsules = torch.zeros(2, 3, requires_grad=True)
    length(capsules).sum().backward()
    assert capsules.grad is not None
    assert capsules.grad.isfinite().all()
    assert length(torch.tensor([3.0, 4.0])).item() == pytest.approx(5)
    assert math.isclose(length(torch.zeros(4)).item(), 0, abs_tol=1e-5)


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3), (45, 1), (100, 3)])
def test_it_gives_the_size_of_the_image(size: int, channels: int) -> None:
    decoder = Decoder(num_concepts=5, channels=(8, 6, 4, 2), out_channels=channels, image_size=size)
    assert decoder(torch.rand(2, 1, 5).softmax(-1)).shape == (2, channels, size, size)
    assert sum(isinstance(layer, nn.ConvTranspose2d) for layer in decoder.modules()) == 4


def test_the_picture_depends_on_the_global_capsule_everywhere() -> None:
    decoder = Decoder(num_concepts=3, channels=(8, 6, 4, 4), out_channels=1, image_size=32).eval()
    pictures = decoder(torch.eye(3).unsqueeze(1))
    assert (pictures[0] != pictures[1]).float().mean() > 0.9


def test_it_learns_a_picture_for_each_concept() -> None:
    decoder = Decoder(num_concepts=2, channels=(16, 8, 8, 8), out_channels=1, image_size=32)
    concepts, target = torch.eye(2).unsqueeze(1), torch.randn(2, 1, 1, 1).expand(2, 1, 32, 32)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.02)
    errors = []
    for _ in range(30):
        error = (decoder(concepts) - target).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert errors[-1] < errors[0] / 4


def test_wrong_number_of_channels() -> None:
    with refused(ValueError):
        Decoder(num_concepts=3, channels=(8, 8, 8), out_channels=1, image_size=28)


def test_learned_phrases() -> None:
    embedding = PhraseEmbedding(num_concepts=3, concept_dim=4, joint_dim=5)
    capsules, phrases = embedding(torch.randn(2, 3, 4))
    assert capsules.shape == (2, 3, 5)
    assert phrases.shape == (3, 5)
    (capsules.square().sum() + phrases.square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in embedding.parameters())


def test_given_phrases_stay_as_they_are_and_are_saved() -> None:
    vectors = torch.randn(3, 7, dtype=torch.float64)
    embedding = PhraseEmbedding(num_concepts=3, concept_dim=4, phrase_vectors=vectors)
    assert not any(name == "phrases" for name, _ in embedding.named_parameters())
    torch.testing.assert_close(embedding.state_dict()["phrases"], vectors.float())
    capsules, phrases = embedding(torch.randn(2, 3, 4))
    assert capsules.shape[-1] == phrases.shape[-1]


@pytest.mark.parametrize("shape", [(2, 7), (3,), (3, 2, 2)])
def test_wrong_vectors(shape: tuple[int, ...]) -> None:
    with refused(ValueError):
        PhraseEmbedding(num_concepts=3, concept_dim=4, phrase_vectors=torch.zeros(shape))
