"""Clients that time their transfers and check every byte."""
