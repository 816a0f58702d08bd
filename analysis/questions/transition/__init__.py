"""At which value of an axis does the error collapse, abruptly?"""
