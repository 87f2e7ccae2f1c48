"""The paper's experiments: which methods, which protocol, where results go, and how they are shown."""
