"""A vehicle's hours in minutes: many clients, blockages, loss; and their results."""
