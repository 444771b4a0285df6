"""How is what was decided told to a person?"""
