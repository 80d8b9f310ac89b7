package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

// maxShown is how much of an answer that is no answer is read for its message.
const maxShown = 16 << 10

// unknownError is the SDK's word for an error without a code or a message.
const unknownError = "UnknownError"

func (c *call) unavailable(message string) *vendors.Error {
	return &vendors.Error{Kind: vendors.Unavailable, Vendor: c.target.Vendor, Message: message}
}

// blocked is the error of an answer that a filter or guardrail replaced: the next candidate may answer. canned is the
// text that a guardrail put in the answer's place.
func (c *call) blocked(reason, canned string) *vendors.Error {
	message := "the answer was blocked (" + reason + ")"
	if canned = c.creds.shown(canned); canned != "" {
		message += ": " + canned
	}
	return &vendors.Error{Kind: vendors.Blocked, Vendor: c.target.Vendor, Message: message}
}

// explain says what an answer with a good status says of a failure, if it does.
func (c *call) explain(otherwise string) string {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(c.exchange.body, &said) == nil && said.Message != "" {
		return c.creds.shown(said.Message)
	}
	return otherwise
}

// failure is the error of a call of the SDK. The SDK's own texts hold addresses and pieces of answers: only its codes
// and messages are used.
func (c *call) failure(ctx context.Context, err error) *vendors.Error {
	x := c.exchange
	switch {
	case errors.Is(x.err, errTooLong):
		return c.within(c.unavailable(errTooLong.Error()))
	case x.err != nil:
		return transport.Failure(ctx, c.target.Vendor, x.err)
	case ctx.Err() != nil:
		return transport.Failure(ctx, c.target.Vendor, ctx.Err())
	case x.res == nil && !unwritten(err):
		// No address follows from the key's region and the target's endpoint.
		return &vendors.Error{Kind: vendors.Denied, Vendor: c.target.Vendor, Message: "the vendor cannot be called with this key: " + keyFormat, Err: err}
	case x.res == nil:
		// The SDK found something missing that the encoder should have seen to.
		return &vendors.Error{Kind: vendors.Invalid, Vendor: c.target.Vendor, Message: "the request cannot be written for this vendor", Err: err}
	case x.status() >= 200 && x.status() <= 299:
		return c.within(c.unavailable(c.explain("answered with something that is not the Converse API's JSON")))
	}
	code, message := "", ""
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		code, message = said.ErrorCode(), said.ErrorMessage()
	}
	if message == "" || message == unknownError {
		message = string(x.body)
	}
	e := c.apiError(x.status(), code, message)
	if broken, ok := errors.AsType[*types.ModelErrorException](err); ok {
		e.Kind = originalKind(e.Kind, broken.OriginalStatusCode, message)
	}
	if x.status() < 400 {
		e.Message = "answered with a redirect, which is not followed"
	}
	e.RetryAfter = transport.RetryAfter(x.header(), time.Now())
	return e
}

// streamError is an error that came as an event.
func (c *call) streamError(said smithy.APIError) *vendors.Error {
	message := said.ErrorMessage()
	broken, ok := said.(*types.ModelStreamErrorException)
	if ok && message == "" {
		message = text(broken.OriginalMessage)
	}
	e := c.apiError(0, said.ErrorCode(), message)
	if ok {
		e.Kind = originalKind(e.Kind, broken.OriginalStatusCode, message+"\n"+text(broken.OriginalMessage))
	}
	return e
}

// unwritten reports whether the SDK could not write a request.
func unwritten(err error) bool {
	_, serializing := errors.AsType[*smithy.SerializationError](err)
	_, missing := errors.AsType[smithy.InvalidParamsError](err)
	_, missingToo := errors.AsType[*smithy.InvalidParamsError](err)
	return serializing || missing || missingToo
}

// originalKind is the kind of an error that the service passes on from the model's own server. One that is the request's
// fault says nothing against the model.
func originalKind(kind vendors.Kind, status *int32, message string) vendors.Kind {
	switch status := int(value(status)); {
	case status == http.StatusBadRequest || status == http.StatusUnprocessableEntity:
		return validationKind(message)
	case status > http.StatusBadRequest && status < 600:
		return transport.KindOf(status)
	}
	return kind
}

func (c *call) apiError(status int, code, message string) *vendors.Error {
	e := &vendors.Error{Kind: kindOf(status, code, message), Vendor: c.target.Vendor, Status: status, Message: c.creds.shown(message)}
	switch {
	case e.Message != "" && e.Message != unknownError:
	case code != "" && code != unknownError:
		e.Message = c.creds.shown(code)
	case status != 0:
		e.Message = http.StatusText(status)
	default:
		e.Message = "the call failed"
	}
	return e
}

// codes are the vendor's exceptions, those of the service and those of its door, which all services share. They say more
// than the status. Events spell the same names with a small letter.
var codes = map[string]vendors.Kind{
	"accessdeniedexception": vendors.Denied, "unrecognizedclientexception": vendors.Denied, "invalidclienttokenid": vendors.Denied,
	"expiredtokenexception": vendors.Denied, "expiredtoken": vendors.Denied, "invalidsignatureexception": vendors.Denied,
	"signaturedoesnotmatch": vendors.Denied, "incompletesignatureexception": vendors.Denied, "incompletesignature": vendors.Denied,
	"missingauthenticationtokenexception": vendors.Denied, "missingauthenticationtoken": vendors.Denied,
	"resourcenotfoundexception": vendors.Denied, "servicequotaexceededexception": vendors.Denied, "optinrequired": vendors.Denied,
	"throttlingexception": vendors.RateLimited, "throttling": vendors.RateLimited, "toomanyrequestsexception": vendors.RateLimited,
	"modelnotreadyexception": vendors.RateLimited,
	"modelerrorexception":    vendors.Unavailable, "modelstreamerrorexception": vendors.Unavailable,
	"modeltimeoutexception": vendors.Unavailable, "internalserverexception": vendors.Unavailable, "internalfailure": vendors.Unavailable,
	"serviceunavailableexception": vendors.Unavailable, "serviceunavailable": vendors.Unavailable, "conflictexception": vendors.Unavailable,
}

// What a ValidationException means is in its text alone. The phrases are specific, since texts may quote the request.
var (
	overflowPhrases = []string{
		"input is too long", "prompt is too long", "too many tokens", "too many input tokens", "input length exceeds",
		"maximum context length", "exceeds the context", "exceed the context", "exceed context limit", "exceeds the model's context window",
		"exceeds the maximum number of tokens", "number of input tokens exceeds",
	}
	modelPhrases = []string{
		"model identifier is invalid", "on-demand throughput", "model id is invalid", "is not authorized", "not authorized to",
		"end of its life", "operation not allowed",
	}
	// lackPhrases tell what another model may have.
	lackPhrases = []string{
		"model doesn't support", "model does not support", "model that you provided doesn't support", "not supported by this model",
		"not supported for this model",
	}
	// quotes are what a text quotes. An apostrophe within a word is none.
	quotes = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|“[^”]*”|(?:^|[\\s(\\[:=,])'[^']*'")
)

func validationKind(message string) vendors.Kind {
	message = strings.ToLower(strings.ReplaceAll(quotes.ReplaceAllString(message, " … "), "’", "'"))
	switch {
	case hasAny(message, overflowPhrases):
		return vendors.Overflow
	case hasAny(message, modelPhrases):
		return vendors.Denied
	case hasAny(message, lackPhrases):
		return vendors.Unsupported
	}
	return vendors.Invalid
}

func kindOf(status int, code, message string) vendors.Kind {
	code = strings.ToLower(code)
	if kind, known := codes[code]; known {
		return kind
	}
	switch {
	case code == "validationexception":
		return validationKind(message)
	case status >= 400 && status < 500 && status != http.StatusTooManyRequests && validationKind(message) == vendors.Overflow:
		return vendors.Overflow
	case status == http.StatusFailedDependency: // ModelErrorException without its name
		return vendors.Unavailable
	case status != 0:
		return transport.KindOf(status)
	}
	return vendors.Unavailable
}

func hasAny(text string, phrases []string) bool {
	return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(text, p) })
}
