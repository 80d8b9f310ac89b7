package openaiapi

import "fmt"

// SyntaxError says that a text is not JSON.
type SyntaxError struct {
	// Offset is the byte where reading stopped.
	Offset int
	What   string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("not JSON at byte %d: %s", e.Offset, e.What) }

// TypeError says that a member has a value of the wrong type. Its text may be shown to a caller.
type TypeError struct {
	// Path of the member, such as messages[2].content; empty for the whole text.
	Path string
	// Want is what was expected, in words.
	Want string
}

func (e *TypeError) Error() string {
	if e.Path == "" {
		return "expected " + e.Want
	}
	return e.Path + ": expected " + e.Want
}
