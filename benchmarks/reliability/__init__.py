"""Does a command crash, hide an error or leave files behind, whatever its input and whenever it stops?"""
