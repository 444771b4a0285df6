"""How is the live input kept, for profiling and for whoever wants to see it again?"""
