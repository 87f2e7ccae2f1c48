"""The paper's experiments: methods, protocol, results on disk, tables and figures."""
