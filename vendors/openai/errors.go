package openai

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/transport"
)

func unavailable(t vendors.Target, message string) *vendors.Error {
	return transport.Unavailable(t.Vendor, message)
}

func garbled(t vendors.Target, cause error) *vendors.Error { return transport.Garbled(t.Vendor, cause) }

// shown makes a vendor's words fit to show.
func shown(t vendors.Target, said string) string { return transport.Text(said, t.Key) }

// statusError reads an answer that is an error.
func statusError(t vendors.Target, res *http.Response) *vendors.Error {
	body := transport.ErrorBody(res)
	said := openaiapi.DecodeError(body)
	if said == nil {
		said = &openaiapi.ErrorBody{Message: string(body)}
	}
	e := apiError(t, res.StatusCode, said)
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		e.Message = "answered with a redirect, which is not followed"
	}
	if e.Message == "" {
		e.Message = http.StatusText(res.StatusCode)
	}
	if e.Kind != vendors.Denied { // waiting brings no money and no better key
		e.RetryAfter = transport.RetryAfter(res.Header, time.Now())
	}
	return e
}

// apiError is an error that the vendor described. Without a status it came within an answer that had begun well.
func apiError(t vendors.Target, status int, said *openaiapi.ErrorBody) *vendors.Error {
	return &vendors.Error{
		Kind: kindOf(status, said), Vendor: t.Vendor, Status: status, Message: shown(t, said.Message), Param: shown(t, said.Param),
	}
}

// What the codes and types of errors mean, in the spellings of all servers of this dialect. A status says less: 400 may
// be a mistake of the caller, a prompt that is too long or one that was blocked, and 429 an empty account.
var (
	overflowCodes = []string{"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "request_too_large", "prompt_too_long"}
	blockedCodes  = []string{"content_filter", "content_policy", "policy_violation", "responsibleaipolicyviolation", "moderation_blocked", "invalid_prompt", "bio_policy"}
	moneyCodes    = []string{"insufficient_quota", "credit_balance", "billing", "spend_limit", "usage_limit", "account_deactivated", "insufficient_balance"}
	deniedCodes   = []string{"invalid_api_key", "authentication_error", "permission_error", "permission_denied", "model_not_found", "not_found_error", "deploymentnotfound"}
	rateCodes     = []string{"rate_limit", "slow_down", "too_many_requests"}
	busyCodes     = []string{"overloaded", "server_error", "service_unavailable", "capacity", "timeout"}
	// retryCodes say that the model failed to write a call or JSON as asked; another try can succeed.
	retryCodes   = []string{"tool_use_failed", "json_validate_failed"}
	invalidCodes = []string{"invalid_request_error", "unsupported_parameter", "unsupported_value", "invalid_value"}
)

// overflowPhrases are for servers whose codes say nothing. They are specific, since messages may quote the request.
var overflowPhrases = []string{
	"maximum context length", "context length exceeded", "exceeds the available context size", "prompt is too long",
	"exceed the context window", "exceeds the context window", "exceeds the context length", "maximum number of tokens",
	"too large for model with", "exceeds context length", "input length exceeds",
	"`inputs` tokens + `max_new_tokens`", "`inputs` must have less than",
}

func kindOf(status int, said *openaiapi.ErrorBody) vendors.Kind {
	code := strings.ToLower(said.Code + " " + said.Type)
	refusal := status == 0 || status >= 400 && status < 500
	switch {
	case !refusal:
		return transport.KindOf(status)
	case hasAny(code, overflowCodes), status != http.StatusTooManyRequests && hasAny(strings.ToLower(said.Message), overflowPhrases):
		return vendors.Overflow
	case hasAny(code, blockedCodes):
		return vendors.Blocked
	case hasAny(code, moneyCodes), hasAny(code, deniedCodes):
		return vendors.Denied
	case hasAny(code, retryCodes):
		return vendors.Unavailable
	case status != 0:
		return transport.KindOf(status)
	}
	// Within an answer: the code may be a status in digits.
	if digits, err := strconv.Atoi(said.Code); err == nil && digits >= 400 && digits < 600 {
		return transport.KindOf(digits)
	}
	switch {
	case hasAny(code, rateCodes):
		return vendors.RateLimited
	case hasAny(code, busyCodes):
		return vendors.Unavailable
	case hasAny(code, invalidCodes):
		return vendors.Invalid
	}
	return vendors.Unavailable
}

func hasAny(text string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}
