"""Rules of scripts/tidy, by what they read. A rule is a function that takes the tree and yields its
complaints; scripts/tidy lists the rules, tests/tidy has a planted case for each.

The tree is the list of its code files (`Source`), with `root` and `names`, every tracked path."""
