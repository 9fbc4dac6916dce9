"""What is measured of a run: accuracies, class priors, audit, theory, diagnosis, costs, cautions."""
