"""The accuracy laboratory: given answers scored through the serving path, token by token, against the full cache."""
