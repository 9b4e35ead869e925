"""Hours of a vehicle in minutes: many clients, blockages, loss; and what came of them."""
