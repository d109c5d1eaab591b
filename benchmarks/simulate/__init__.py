"""What a simulated run costs, how far it is from the prediction, and whether other tools read what is exported."""
