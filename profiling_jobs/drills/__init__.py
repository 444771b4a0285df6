"""How long does the job take to come back when something fails?"""
