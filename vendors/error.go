package vendors

import (
	"errors"
	"fmt"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// Kind says what an error means for the walk along a chain of candidates.
type Kind int

// The kinds, and what the walk does with them.
const (
	// Unavailable: the vendor is down, overloaded or unreachable, or its answer was cut or garbled. One retry in
	// place if the wait is short, then the next candidate.
	Unavailable Kind = iota
	// RateLimited: too many requests. One retry in place if the wait is short, then the next candidate.
	RateLimited
	// Denied: the credential, the account's money or the model's name was refused. The next candidate.
	Denied
	// Overflow: the prompt is longer than the model takes. The next candidate, which may be a larger one.
	Overflow
	// Blocked: the vendor's policy refused the content. The next candidate.
	Blocked
	// Unsupported: the dialect cannot carry what the request asks for. The next candidate, which may speak another.
	Unsupported
	// Unfit: the answer breaks the schema that was asked for. One retry in place, then the next candidate.
	Unfit
	// Invalid: the vendor says that the request is wrong; every other one would too. The walk ends, of the local pool when a
	// second machine says so, too.
	Invalid
	// Canceled: the caller went away or its deadline passed. The walk ends, nobody is to blame.
	Canceled
	// Busy: no machine of the local pool is there for the request, or none is free in time. Nobody was called. The next
	// candidate.
	Busy
)

var kindNames = [...]string{"unavailable", "rate_limited", "denied", "overflow", "blocked", "unsupported", "unfit", "invalid", "canceled", "busy"}

func (k Kind) String() string { return kindNames[k] }

// ErrSilent is the cause of a context that ended because nothing came of the vendor for too long.
var ErrSilent = errors.New("the vendor went silent")

// Error is what a vendor call ends in. Its text names the vendor and what it said, never a credential.
type Error struct {
	Kind   Kind
	Vendor string
	// Status is the HTTP status, 0 when there was no response.
	Status int
	// RetryAfter is the wait that the vendor asked for, 0 when it asked for none.
	RetryAfter time.Duration
	// Message is what the vendor said, shortened and free of credentials; it may be shown to the caller.
	Message string
	// Param is the request field that the vendor complained about, if it named one.
	Param string
	// Node is the machine of the local pool that failed, where another one may serve the request. It is for the walk and the
	// log: callers need not know what machines there are.
	Node string
	// Unsent: nothing was sent to anybody.
	Unsent bool
	// Usage is what the vendor counted all the same, and will bill; nil if it did not say.
	Usage *ktmsv1.TokensUsage
	// Err is the cause within this process, for logs.
	Err error
}

// Public is the error as a caller may read it: without the cause, which may hold addresses.
func (e *Error) Public() string {
	text := e.Vendor + ": " + e.Kind.String()
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Error is the whole error, for logs.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Public() + ": " + e.Err.Error()
	}
	return e.Public()
}

func (e *Error) Unwrap() error { return e.Err }
