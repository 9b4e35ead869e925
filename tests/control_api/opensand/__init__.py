"""Tests of the interface to OpenSAND's NCC."""
