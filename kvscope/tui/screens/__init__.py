"""What can cover the terminal: the overview, a board made from one of ``kvscope.screens``, and what lies over them."""
