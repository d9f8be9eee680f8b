"""The head of masks: boxes, and prototypes that each box weighs: assembly, loss, figures."""
