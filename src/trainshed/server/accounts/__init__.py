"""Who may do what: users, teams, roles, passwords, sessions, tokens, keys, secrets, audit."""
