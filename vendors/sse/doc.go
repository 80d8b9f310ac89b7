// Package sse reads and writes event streams (text/event-stream).
//
// The reader follows the HTML standard but for the end: the standard throws away an event that no blank line closes,
// which would hide that a stream was cut. Here it comes back together with io.ErrUnexpectedEOF.
package sse
