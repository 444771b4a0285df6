"""How do measurements become models, and how does a model take charge?"""
