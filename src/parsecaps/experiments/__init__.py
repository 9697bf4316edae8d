"""Experiments: one small module for each claim that is measured."""
