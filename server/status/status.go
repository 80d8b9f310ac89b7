// Package status is the error contract: one table that says what each reason is on every door.
package status

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
)

// Reason is the stable, machine-readable cause of a refused call.
type Reason string

// The reasons that clients see.
const (
	BadRequest         Reason = "bad_request"
	BodyTooLarge       Reason = "body_too_large"
	GuardrailViolation Reason = "guardrail_violation"
	ContentFilter      Reason = "content_filter"
	ContextTooLong     Reason = "context_length_exceeded"
	RequestTooLarge    Reason = "request_too_large"
	OutputTruncated    Reason = "output_truncated"
	NoCapableModel     Reason = "no_capable_model"
	NoVendorKey        Reason = "no_vendor_key"
	NotConfigured      Reason = "not_configured"
	ModelNotFound      Reason = "model_not_found"
	NotFound           Reason = "not_found"
	AlreadyExists      Reason = "already_exists"
	FailedPrecondition Reason = "failed_precondition"
	ModelNotAllowed    Reason = "model_not_allowed"
	Unauthenticated    Reason = "invalid_api_key"
	PermissionDenied   Reason = "insufficient_scope"
	VendorsUnavailable Reason = "vendors_unavailable"
	ThrottledRPM       Reason = "throttled:rpm"
	ThrottledKeyRPM    Reason = "throttled:key_rpm"
	ThrottledKeyTPM    Reason = "throttled:key_tpm"
	BudgetKey          Reason = "throttled:budget_key"
	BudgetUser         Reason = "throttled:budget_user"
	SpendKeyDaily      Reason = "throttled:spend_key_daily"
	SpendKeyMonthly    Reason = "throttled:spend_key_monthly"
	SpendUserDaily     Reason = "throttled:spend_user_daily"
	SpendUserMonthly   Reason = "throttled:spend_user_monthly"
	SpendTeamMonthly   Reason = "throttled:spend_team_monthly"
	SpendUnavailable   Reason = "throttled:spend_unavailable"
	VendorError        Reason = "vendor_error"
	AuthUnavailable    Reason = "auth_unavailable"
	StorageUnavailable Reason = "storage_unavailable"
	Unimplemented      Reason = "unimplemented"
	Canceled           Reason = "canceled"
	DeadlineExceeded   Reason = "deadline_exceeded"
	Internal           Reason = "internal"
)

// The types of an OpenAI error object.
const (
	typeInvalid    = "invalid_request_error"
	typeAuth       = "authentication_error"
	typePermission = "permission_error"
	typeRate       = "rate_limit_error"
	typeQuota      = "insufficient_quota"
	typeServer     = "server_error"
)

// statusClientClosed is what proxies log for a caller that went away; nobody receives it.
const statusClientClosed = 499

// row is what a reason means on the doors.
type row struct {
	rpc  connect.Code
	http int
	typ  string
	// final: the same call would fail again, although its HTTP status makes SDKs retry.
	final bool
	// bare reasons stay out of the message: the manual's texts for these carry none.
	bare bool
	// code is what OpenAI's error object and ErrorInfo say instead of the reason, which then stands in the message alone.
	code string
}

// outOfMoney is what every spend limit means.
var outOfMoney = row{rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeQuota, code: typeQuota, final: true}

var table = map[Reason]row{
	BadRequest:         {rpc: connect.CodeInvalidArgument, http: http.StatusBadRequest, typ: typeInvalid},
	BodyTooLarge:       {rpc: connect.CodeResourceExhausted, http: http.StatusRequestEntityTooLarge, typ: typeInvalid},
	GuardrailViolation: {rpc: connect.CodeInvalidArgument, http: http.StatusBadRequest, typ: typeInvalid},
	ContentFilter:      {rpc: connect.CodeInvalidArgument, http: http.StatusBadRequest, typ: typeInvalid},
	ContextTooLong:     {rpc: connect.CodeInvalidArgument, http: http.StatusBadRequest, typ: typeInvalid},
	RequestTooLarge:    {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid},
	OutputTruncated:    {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid},
	NoCapableModel:     {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid},
	NoVendorKey:        {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid},
	NotConfigured:      {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid},
	ModelNotFound:      {rpc: connect.CodeNotFound, http: http.StatusNotFound, typ: typeInvalid},
	NotFound:           {rpc: connect.CodeNotFound, http: http.StatusNotFound, typ: typeInvalid, bare: true},
	AlreadyExists:      {rpc: connect.CodeAlreadyExists, http: http.StatusConflict, typ: typeInvalid, bare: true},
	FailedPrecondition: {rpc: connect.CodeFailedPrecondition, http: http.StatusBadRequest, typ: typeInvalid, bare: true},
	ModelNotAllowed:    {rpc: connect.CodePermissionDenied, http: http.StatusForbidden, typ: typePermission, bare: true},
	Unauthenticated:    {rpc: connect.CodeUnauthenticated, http: http.StatusUnauthorized, typ: typeAuth, bare: true},
	PermissionDenied:   {rpc: connect.CodePermissionDenied, http: http.StatusForbidden, typ: typePermission, bare: true},
	VendorsUnavailable: {rpc: connect.CodeUnavailable, http: http.StatusServiceUnavailable, typ: typeServer},
	ThrottledRPM:       {rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeRate},
	ThrottledKeyRPM:    {rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeRate},
	ThrottledKeyTPM:    {rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeRate},
	// A budget comes back tomorrow: an SDK that tries again in a second only makes noise.
	BudgetKey:          {rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeRate, final: true},
	BudgetUser:         {rpc: connect.CodeResourceExhausted, http: http.StatusTooManyRequests, typ: typeRate, final: true},
	SpendKeyDaily:      outOfMoney,
	SpendKeyMonthly:    outOfMoney,
	SpendUserDaily:     outOfMoney,
	SpendUserMonthly:   outOfMoney,
	SpendTeamMonthly:   outOfMoney,
	SpendUnavailable:   {rpc: connect.CodeUnavailable, http: http.StatusServiceUnavailable, typ: typeServer},
	VendorError:        {rpc: connect.CodeInternal, http: http.StatusBadGateway, typ: typeServer, final: true},
	AuthUnavailable:    {rpc: connect.CodeUnavailable, http: http.StatusServiceUnavailable, typ: typeServer},
	StorageUnavailable: {rpc: connect.CodeUnavailable, http: http.StatusServiceUnavailable, typ: typeServer},
	Unimplemented:      {rpc: connect.CodeUnimplemented, http: http.StatusNotImplemented, typ: typeServer, final: true, bare: true},
	Canceled:           {rpc: connect.CodeCanceled, http: statusClientClosed, typ: typeServer, bare: true},
	DeadlineExceeded:   {rpc: connect.CodeDeadlineExceeded, http: http.StatusGatewayTimeout, typ: typeServer, bare: true},
	Internal:           {rpc: connect.CodeInternal, http: http.StatusInternalServerError, typ: typeServer, bare: true},
}

// Error is a refusal that a caller may read.
type Error struct {
	Reason Reason
	// Text is for people. It must hold no secret and nothing of Keystone's insides.
	Text string
	// Param is the request field at fault, in the caller's own spelling, if there is one.
	Param string
	// RetryAfter is how long to wait before the same call may succeed; 0 promises nothing.
	RetryAfter time.Duration
	// Allowances are how far the caller was from its rates, for the headers that say it.
	Allowances []Allowance
	// Violations are the mistakes of an invalid request or configuration, each with its path.
	Violations []Violation
	// Details are further messages for the RPC doors.
	Details []proto.Message
	// Cause stays within this process, for logs.
	Cause error
}

// Violation is one mistake.
type Violation struct {
	// Path names the field, such as rules[2].use[0].
	Path string
	// Text says what is wrong with it.
	Text string
}

func (v Violation) String() string {
	if v.Path == "" {
		return v.Text
	}
	return v.Path + ": " + v.Text
}

// New makes an error for a caller.
func New(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// Wrap makes an error for a caller and keeps its cause for the log.
func Wrap(cause error, reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Text: fmt.Sprintf(format, args...), Cause: cause}
}

// Invalid makes one error out of every mistake found.
func Invalid(violations []Violation) *Error {
	texts := make([]string, 0, len(violations))
	for _, v := range violations {
		texts = append(texts, v.String())
	}
	e := &Error{Reason: BadRequest, Text: strings.Join(texts, "; "), Violations: violations}
	if len(violations) > 0 {
		e.Param = violations[0].Path
	}
	return e
}

// Message is what the caller reads: the reason in front where the contract puts it there.
func (e *Error) Message() string {
	switch {
	case table[e.Reason].bare:
		return e.Text
	case e.Text == "":
		return string(e.Reason)
	default:
		return string(e.Reason) + ": " + e.Text
	}
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message() + ": " + e.Cause.Error()
	}
	return e.Message()
}

func (e *Error) Unwrap() error { return e.Cause }

// Code is the reason as machines read it: the error object's code and ErrorInfo's reason.
func (e *Error) Code() string {
	if code := table[e.Reason].code; code != "" {
		return code
	}
	return string(e.Reason)
}

// As finds the caller's error within err. Anything unknown becomes Internal without its text, which only logs may see.
func As(err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return Wrap(err, Internal, "internal error")
}
