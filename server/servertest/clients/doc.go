// Package clients runs official clients against the real server. It is a module of its own, so that their dependencies
// stay out of the product's.
package clients
