"""DP SQL and tables: parse, bind, bound contributions, rewrite, run."""
