package anthropic

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

func unavailable(t vendors.Target, message string) *vendors.Error {
	return &vendors.Error{Kind: vendors.Unavailable, Vendor: t.Vendor, Message: message}
}

// garbled is the error of an answer that cannot be read. The cause says where, not what: the text may be the caller's.
func garbled(t vendors.Target, cause error) *vendors.Error {
	e := unavailable(t, "answered with something that is not the Messages API's JSON")
	e.Err = cause
	return e
}

// wireError is what the vendor says of a failure.
type wireError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Details *struct {
		ErrorCode string `json:"error_code"`
	} `json:"details"`
}

// code is the finer word for what happened, where there is one.
func (e *wireError) code() string {
	if e.Details == nil {
		return ""
	}
	return e.Details.ErrorCode
}

// readError reads the body of an error. Proxies have forms of their own, which say little more than a text.
func readError(body []byte) *wireError {
	var wire struct {
		Error *wireError `json:"error"`
	}
	if json.Unmarshal(body, &wire) == nil && wire.Error != nil {
		return wire.Error
	}
	if said := openaiapi.DecodeError(body); said != nil {
		return &wireError{Type: said.Type, Message: said.Message}
	}
	return &wireError{Message: string(body)}
}

// statusError reads an answer that is an error.
func statusError(t vendors.Target, res *http.Response) *vendors.Error {
	said := readError(transport.ErrorBody(res))
	e := apiError(t, res.StatusCode, said)
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		e.Message = "answered with a redirect, which is not followed"
	}
	if e.Message == "" {
		e.Message = http.StatusText(res.StatusCode)
	}
	e.RetryAfter = transport.RetryAfter(res.Header, time.Now())
	return e
}

// apiError is an error that the vendor described. Without a status it came within an answer that had begun well.
func apiError(t vendors.Target, status int, said *wireError) *vendors.Error {
	e := &vendors.Error{
		Kind: kindOf(status, said), Vendor: t.Vendor, Status: status, Message: transport.Text(said.Message, t.Key),
	}
	if m := paramPath.FindStringSubmatch(said.Message); m != nil && said.Type == "invalid_request_error" {
		e.Param = transport.Text(m[1], t.Key)
	}
	return e
}

// paramPath is how complaints about a member begin: "messages.0.content.1.text: …".
var paramPath = regexp.MustCompile(`^([a-z_]+(?:\.[A-Za-z0-9_-]+)*): `)

// errorStatus is the status that belongs to each type of error; within a stream there is none.
var errorStatus = map[string]int{
	"invalid_request_error": http.StatusBadRequest, "authentication_error": http.StatusUnauthorized, "billing_error": http.StatusPaymentRequired,
	"permission_error": http.StatusForbidden, "not_found_error": http.StatusNotFound, "conflict_error": http.StatusConflict,
	"request_too_large": http.StatusRequestEntityTooLarge, "rate_limit_error": http.StatusTooManyRequests,
	"api_error": http.StatusInternalServerError, "timeout_error": http.StatusGatewayTimeout, "overloaded_error": http.StatusServiceUnavailable,
}

// What the messages of invalid requests mean where the type does not tell. They are specific, since messages may quote
// the request.
var (
	overflowPhrases = []string{"prompt is too long", "exceed context limit", "exceeds the maximum number of tokens", "exceeds the context window"}
	moneyPhrases    = []string{"spend limit", "specified api usage limits", "credit balance is too low"}
)

func kindOf(status int, said *wireError) vendors.Kind {
	if status == 0 {
		if status = errorStatus[said.Type]; status == 0 {
			return vendors.Unavailable
		}
	}
	text := strings.ToLower(said.Message)
	switch {
	case status == http.StatusBadRequest && hasAny(text, overflowPhrases):
		return vendors.Overflow
	case status == http.StatusBadRequest && hasAny(text, moneyPhrases) && !paramPath.MatchString(said.Message):
		return vendors.Denied
	case status == http.StatusTooManyRequests && said.code() == "enforced_spend_limit_reached":
		return vendors.Denied
	}
	return transport.KindOf(status)
}

func hasAny(text string, phrases []string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}
