"""Tests of when a beam is planned anew, and from which data, in virtual time."""
