"""What an experiment file may say, and what it comes to: settings, their layers, studies."""
