// Package claude holds what Claude models have in common, whoever serves them: what each generation takes, the order of
// their signed thinking, and the rules for breakpoints of their prompt cache.
package claude
