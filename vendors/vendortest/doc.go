// Package vendortest is the suite that every dialect runs, and the scripted server that it runs against.
//
// Upstream is a real server on 127.0.0.1. A Reply scripts what it does with one call: answer, stall, cut, trickle,
// reset. It records what it was sent and when a caller went away. Script spells answers and failures in the words of
// one dialect; Run holds a dialect to what vendors.Vendor promises, whatever its words are.
//
// Nothing here sleeps: tests wait for signals, with a deadline for those that never come.
package vendortest
