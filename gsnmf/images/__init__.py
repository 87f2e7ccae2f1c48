"""Preprocessing of images for factorisation."""
