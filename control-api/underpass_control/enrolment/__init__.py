"""Enrolment: how a bare node becomes one of the fleet."""
