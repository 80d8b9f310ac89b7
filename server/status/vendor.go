package status

import "github.com/ai-process/ktms/vendors"

// Step is what the walk along a chain does after a failed attempt.
type Step int

// The steps.
const (
	// Stop ends the walk: every other candidate would fail the same way, or nobody listens any more.
	Stop Step = iota
	// Next moves to the next candidate.
	Next
	// RetryThenNext tries the same candidate once more, if the wait is short, before it moves on.
	RetryThenNext
)

// Verdict is what a kind of vendor error means for the walk, the breaker and the credential.
type Verdict struct {
	Step Step
	// Reason is what the caller is told when nothing else answered.
	Reason Reason
	// Breaks counts against the circuit breaker of the vendor's model.
	Breaks bool
	// Pauses keeps the credential away from the model for as long as the vendor asked.
	Pauses bool
}

var verdicts = map[vendors.Kind]Verdict{
	vendors.Unavailable: {Step: RetryThenNext, Reason: VendorsUnavailable, Breaks: true, Pauses: true},
	vendors.RateLimited: {Step: RetryThenNext, Reason: VendorsUnavailable, Pauses: true},
	vendors.Denied:      {Step: Next, Reason: VendorError},
	vendors.Overflow:    {Step: Next, Reason: ContextTooLong},
	vendors.Blocked:     {Step: Next, Reason: ContentFilter},
	vendors.Unsupported: {Step: Next, Reason: BadRequest},
	vendors.Unfit:       {Step: RetryThenNext, Reason: VendorError},
	vendors.Invalid:     {Step: Stop, Reason: BadRequest},
	vendors.Canceled:    {Step: Stop, Reason: Canceled},
	vendors.Busy:        {Step: Next, Reason: VendorsUnavailable},
}

// Judge returns the verdict on a kind of vendor error.
func Judge(kind vendors.Kind) Verdict { return verdicts[kind] }
