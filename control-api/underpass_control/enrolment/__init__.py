"""Enrolment: how a new node joins the fleet."""
