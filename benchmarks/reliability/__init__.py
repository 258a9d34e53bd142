"""Does anything crash, stay silent or leave files behind, whatever it is given and whenever it is stopped?"""
