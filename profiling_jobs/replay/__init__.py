"""How do recorded or generated records arrive at a commanded rate?"""
